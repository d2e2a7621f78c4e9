"""Conversion of short models: length, type, tokenizer, loading."""

import subprocess
import sys
from functools import partial

import pytest
import torch
import transformers
from transformers import AutoTokenizer, ModernBertConfig, ModernBertModel

from fairseq_poolingformer.huggingface import (
    PoolingformerBartConfig,
    PoolingformerBartForConditionalGeneration,
    PoolingformerModernBertModel,
    PoolingformerRobertaConfig,
    PoolingformerRobertaForMaskedLM,
)
from fairseq_poolingformer.huggingface.short_models import OF_THE_PAPERS, ONE_SOFTMAX
from tests.huggingface import tiny_models
from tests.models import tiny_huggingface

SMALL = {"vocab_size": 20, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
SMALL |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "pooled_layers": "0"}
SMALL |= {"max_position_embeddings": 16, "max_decoder_position_embeddings": 16}


def test_weights_need_no_folder():
    model = PoolingformerBartForConditionalGeneration(PoolingformerBartConfig(**SMALL))
    again = type(model).from_pretrained(None, config=model.config, state_dict=model.state_dict())
    assert all(value.equal(again.state_dict()[name]) for name, value in model.state_dict().items())


def test_an_old_transformers_is_named():
    program = "import transformers\ntransformers.__version__ = '4.57.6'\nimport fairseq_poolingformer.huggingface"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: Poolingformers need transformers>=5.23, and this is 4.57.6: install")


def test_wrong_lengths_and_types_are_refused():
    short = tiny_huggingface.model("bart")  # of 40 positions
    for longest in (-1, 0, 39, "4096", 1e4):
        with pytest.raises(ValueError, match=r"max_position_embeddings is .* must be a whole number of 40 or more"):
            PoolingformerBartForConditionalGeneration.from_short(short, max_position_embeddings=longest)
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16}
    rotary = ModernBertModel(ModernBertConfig(vocab_size=30, pad_token_id=1, **sizes))  # has no table that is cut
    assert PoolingformerModernBertModel.from_short(rotary, max_position_embeddings=60).max_tokens == 60
    for dtype in ("bf16", "nn", 16):
        with pytest.raises(ValueError, match=rf"dtype is {dtype!r}, and must be \"auto\" or one of torch's"):
            PoolingformerBartForConditionalGeneration.from_short(short, dtype=dtype)
    settings = {"max_position_embeddings": 40, "pooled_layers": "2", "dtype": "bfloat16"}
    assert PoolingformerBartForConditionalGeneration.from_short(short, **settings).dtype == torch.bfloat16


@pytest.mark.parametrize(("kind", "extra"), [("bart", 0), ("roberta", 2)])
def test_the_tokenizer_comes_along_with_the_length_of_the_long_model(kind, extra, tmp_path, caplog):
    """By a folder's name and by a model loaded from it; one that lies in the folder already is the user's."""
    cls = {"bart": PoolingformerBartForConditionalGeneration, "roberta": PoolingformerRobertaForMaskedLM}[kind]
    folder = tiny_huggingface.folder(tmp_path / "short", kind)
    for number, short in enumerate((folder, str(folder), cls.short_classes[kind].from_pretrained(folder))):
        long = cls.from_short(short, max_position_embeddings=120 + extra, pooled_layers="2")
        long.save_pretrained(tmp_path / str(number))
        assert long.tokenizer.model_max_length == 120
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / str(number))
        assert tokenizer.model_max_length == 120
        assert len(tokenizer("the thing " * 200, truncation=True)["input_ids"]) == 120
    AutoTokenizer.from_pretrained(folder, model_max_length=77).save_pretrained(tmp_path / "own")
    long.save_pretrained(tmp_path / "own")
    assert AutoTokenizer.from_pretrained(tmp_path / "own").model_max_length == 77
    assert cls.from_short(tiny_huggingface.model(kind), pooled_layers="2").tokenizer is None
    assert "tokenizer" not in caplog.text
    for file in ("vocab.json", "merges.txt"):
        (folder / file).unlink()
    assert cls.from_short(folder, pooled_layers="2").tokenizer is None
    assert (
        "its tokenizer is not kept beside the long model, since it cannot be read (it has no words); save one there"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("kind", "positions", "window"),
    [("bert", 512, "255"), ("roberta", 514, "255"), ("roberta", 512, "128"), ("bart", 1024, "128")],
)
def test_the_window_sees_each_of_512_repeated_positions_once(kind, positions, window):
    base = tiny_models.short(kind, attn_implementation="sdpa", max_position_embeddings=positions).float()
    make = partial(tiny_models.ours(kind, "Model").from_short, base, max_position_embeddings=2000)
    assert make().config.window_size == window
    assert make(window_size=7).config.window_size == 7
    if window == "255":
        tokens = torch.randint(4, 50, (1, 500))
        with torch.no_grad():
            assert make()(tokens[:, :256])[0].equal(base(tokens[:, :256])[0])  # what the window holds, bit for bit
            assert not torch.allclose(make()(tokens)[0], base(tokens)[0], atol=1e-3)


def test_level_two_is_in_one_softmax_but_where_a_value_is_the_papers_alone(caplog):
    """The default equals the short model where the window holds the text, at any reach."""
    short, tokens = tiny_huggingface.model("roberta").eval(), torch.randint(4, 260, (2, 26))
    make = partial(PoolingformerRobertaForMaskedLM.from_short, short)
    with caplog.at_level("INFO"):
        long = make(max_position_embeddings=200, window_size="26")
    assert f"the PoolingformerRobertaForMaskedLM has {ONE_SOFTMAX}" in caplog.text
    assert ONE_SOFTMAX in PoolingformerRobertaForMaskedLM.__doc__
    assert [layer.attention.self.one_softmax for layer in long.roberta.encoder.layer] == [False, True, True]
    assert (long.config.pool_type, long.config.pool_kernel_size, long.config.pool_stride) == ("ldconv", 4, 4)
    more = (200 - short.config.max_position_embeddings) * 24 + 2 * (2 * 4 * 24)  # which tokens count, in two layers
    assert long.num_parameters() - short.num_parameters() == more
    with torch.no_grad():
        torch.testing.assert_close(long(tokens).logits, short(tokens).logits, rtol=0, atol=1e-5)
    assert make(pooled_layers="none").config.pool_merge == "sum"
    defaults = [{name: getattr(PoolingformerRobertaConfig(), name)} for name in (*OF_THE_PAPERS, "dilation")]
    defaults += [{"pool_kernel_size": 4}, {"pool_kernel_size": 3, "pool_stride": 3}, {"pool_kernel_size": None}]
    defaults += [{"dilation": [1, 1]}, {"pool_mix": None}, {"pool_type": "mean-ldconv"}]
    for settings in defaults:  # written out
        assert make(**settings).config.pool_merge == "softmax", settings
    values = [{"pool_mix": True}, {"pool_share_weights": True}, {"pool_alignment": "query"}, {"pooled_init": "copy"}]
    values += [{"pool_kernel_size": 5}, {"pool_stride": 3, "pool_kernel_size": 4}, {"pool_type": "max"}]
    values += [{"relative_attention": "c2p"}, {"dilation": "2"}, {"dilation": [1, 2]}]
    for settings in values:
        config = make(**settings).config
        assert (config.pool_merge, config.pool_kernel_size) == ("sum", settings.get("pool_kernel_size", 5)), settings


SUM = {"pool_merge": "sum", "pool_type": "mean"}
FROZEN, UNTRAINED = "level two keeps its random values", "the pool weights stay as they are"


@pytest.mark.parametrize(
    ("settings", "adapters", "warning"),
    [
        (SUM | {"pooled_init": "copy-zero-values"}, {}, None),
        (SUM | {"pooled_init": "random"}, {"target_modules": ["query", "pooled_v_proj"]}, None),
        (SUM | {"pooled_init": "random"}, {}, FROZEN),
        # level two of a default long model has no other parameters
        ({"pool_type": "mean"}, {}, None),
        ({}, {"target_parameters": ["pooled_k_pool_weight", "pooled_v_pool_weight"]}, None),
        ({}, {}, UNTRAINED),
    ],
)
def test_adapters_that_leave_level_two_untrained_are_warned_of(settings, adapters, warning, caplog):
    peft = pytest.importorskip("peft")
    transformers.utils.logging.warning_once.cache_clear()
    tokens = torch.randint(4, 260, (1, 30))
    long = PoolingformerRobertaForMaskedLM.from_short(tiny_huggingface.model("roberta"), window_size=4, **settings)
    config = peft.LoraConfig(**{"target_modules": ["query"], "init_lora_weights": False, **adapters})
    adapted = peft.get_peft_model(long, config).train()
    for _ in range(2):  # and once
        adapted(tokens, labels=tokens).loss.backward()
    assert [caplog.text.count(text) for text in (FROZEN, UNTRAINED)] == [warning == FROZEN, warning == UNTRAINED]
    gradients = [p.grad for name, p in adapted.named_parameters() if name.endswith("self.lora_A.default.weight")]
    assert len(gradients) == 2 * ("target_parameters" in adapters)
    assert all(gradient.abs().max() > 0 for gradient in gradients)
    if warning == UNTRAINED:  # not LoRA: the attention is not trained
        long.requires_grad_(False).train()
        transformers.utils.logging.warning_once.cache_clear()
        long(tokens)
        assert caplog.text.count(UNTRAINED) == 1
