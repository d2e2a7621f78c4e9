"""Which tokens reach which, found in models that are right, and in one that is broken in five ways."""

import copy

import pytest
import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import (
    causal_mask_function,
    sdpa_mask,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)

from fairseq_poolingformer.cli.who_sees_whom import main
from fairseq_poolingformer.huggingface import PoolingformerBertModel, who_sees_whom
from tests.huggingface.test_band import DECODER, ENCODER, LAYERS, WIDE

MODELS = {
    "Bert": ENCODER,
    "ModernBert": {**ENCODER, "local_attention": 10, **LAYERS},
    "EuroBert": {**ENCODER, "mask_token_id": 3},
    "Mistral": DECODER,
    "Qwen3": {**DECODER, "use_sliding_window": True, "head_dim": 8, **LAYERS},
    "Gemma3Text": {**DECODER, **WIDE},
    "EmbeddingGemma": {**DECODER, **WIDE, "use_bidirectional_attention": True},
    "T5": {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 99},
}


def model(name, attention="sdpa"):
    config = getattr(transformers, f"{name.replace('EmbeddingGemma', 'Gemma3Text')}Config")(**MODELS[name])
    torch.manual_seed(0)
    return transformers.AutoModel.from_config(copy.deepcopy(config), attn_implementation=attention)


@pytest.mark.parametrize("name", MODELS)
def test_models_that_do_as_their_configuration_says(name):
    for attention in ("sdpa", "band"):
        reaches, findings = who_sees_whom(model(name, attention))
        assert findings == []
        windows = {"ModernBert": (5, 5), "Mistral": (4, 0), "Qwen3": (4, 0), "Gemma3Text": (4, 0)}
        windows["EmbeddingGemma"] = (2, 2)
        assert reaches[0] == windows.get(name, (reaches[1][0],) * 2)


def test_long_models_have_no_findings():
    """Their layers have each row's tokens first, whatever the side of its padding."""
    short = model("Bert")
    levels = {
        "window_size": "3",
        "pooled_window_size": "8",
        "pooled_layers": "1",
        "global_tokens": 0,
        "pooled_init": "copy",
    }
    (one, two), findings = who_sees_whom(PoolingformerBertModel.from_short(short, **levels), (30,))
    assert findings == []
    assert one == (3, 3)
    assert 8 < two[0] < 29


def broken(how):
    """sdpa's mask with a mistake."""

    def mask(*args, mask_function, local_size=None, attention_mask=None, allow_is_causal_skip=True, **kwargs):
        kwargs["allow_is_bidirectional_skip"] = False
        if local_size and how == "off by one":
            mask_function = sliding_window_causal_mask_function(local_size + 1)
        if local_size and how == "one side":
            window = sliding_window_bidirectional_mask_function(local_size)
            mask_function = lambda b, h, q, k: window(b, h, q, k) & (k < q + local_size)  # noqa: E731
        if how == "a hole":
            whole = mask_function
            mask_function = lambda b, h, q, k: whole(b, h, q, k) & (k != q - 2)  # noqa: E731
        if how == "full":
            mask_function, local_size = causal_mask_function, None
        if how == "padding":
            attention_mask = None
        if how == "packed":
            mask_function = sliding_window_causal_mask_function(local_size)
        given = {"local_size": local_size, "attention_mask": attention_mask}
        return sdpa_mask(*args, mask_function=mask_function, allow_is_causal_skip=False, **given, **kwargs)

    return mask


@pytest.mark.parametrize(
    ("name", "how", "expected"),
    [
        ("Mistral", "off by one", "layers 0, 1: 5 tokens on the left, 0 on the right; the configuration says 4 on"),
        ("ModernBert", "one side", "layer 0: 5 tokens on the left, 4 on the right; the configuration says 5"),
        (
            "Mistral",
            "full",
            "layers 0, 1: the whole text is seen; the configuration says 4 on the left, 0",
        ),
        ("Mistral", "a hole", "layers 0, 1: of 9 tokens 4 does not see 2; the configuration says 4 on the left, 0 on"),
        ("Mistral", "padding", "layers 0, 1: padding on the left is seen"),
        ("ModernBert", "padding", "layers 0, 1: padding on the right is seen"),
        ("Mistral", "packed", "layers 0, 1: a packed document sees the one before it"),
    ],
)
def test_what_is_broken_is_found(name, how, expected, monkeypatch):
    monkeypatch.setitem(AttentionInterface._global_mapping, "broken", sdpa_attention_forward)
    monkeypatch.setitem(AttentionMaskInterface._global_mapping, "broken", broken(how))
    _, findings = who_sees_whom(model(name, "broken"))
    assert any(finding.startswith(expected) for finding in findings), findings
    assert all(how != "packed" or "packed" in finding for finding in findings)


def test_the_command(tmp_path, capsys):
    model("Mistral").save_pretrained(tmp_path)
    assert main([str(tmp_path), "--attention", "band", "--lengths", "20"]) == 0
    assert capsys.readouterr().out.startswith("layer 0: 4 tokens on the left, 0 on the right\n")
    wider = transformers.MistralConfig(**{**DECODER, "sliding_window": 5, "attn_implementation": "eager"})
    wider.use_sliding_window = False  # which Mistral does not heed
    transformers.MistralModel(wider).save_pretrained(tmp_path)
    assert main([str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "layers 0, 1: 4 tokens on the left, 0 on the right; the configuration says all on" in captured.out
    assert captured.err.endswith(f"1 finding in {tmp_path}\n")
    assert main([str(tmp_path), "--lengths", "9", "300"]) == 1
    assert "a text of 300 tokens: the model takes 256; give smaller lengths" in capsys.readouterr().err
