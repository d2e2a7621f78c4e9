"""Poolingformer-ModernBERT against transformers' ModernBERT, and against the equations."""

import json

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModel, AutoModelForMaskedLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.choices import UNLIMITED
from fairseq_poolingformer.huggingface import PoolingformerModernBertConfig, PoolingformerModernBertModel
from tests.attention.test_modules import expected_output
from tests.huggingface.tiny_models import enlarge, short, word_tokenizer
from tests.weights.conftest import run

ROWS, WINDOW, LENGTHS = 60, 5, (40, 23, 9)
SIZES = {
    **{"vocab_size": ROWS, "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 5},
    **{"intermediate_size": 36, "local_attention": 2 * WINDOW, "max_position_embeddings": 64},
    **{"pad_token_id": 1, "bos_token_id": 0, "cls_token_id": 0, "eos_token_id": 2, "sep_token_id": 2},
}
WIDE = {"window_size": "all", "pooled_layers": "none"}
LEVELS = {"window_size": "3", "pooled_window_size": "8", "pool_merge": "sum"}
HEADS = ["Model", *(f"For{end}" for end in ("MaskedLM", "SequenceClassification", "TokenClassification"))]
HEADS += ["ForQuestionAnswering", "ForMultipleChoice"]


def own_class(head):
    return getattr(huggingface, f"PoolingformerModernBert{head}")


def short_model(head="Model", **changes):
    return short("modernbert", head, **{**SIZES, **changes}).float()


def batch(lengths=LENGTHS):
    """(B, T) random ids, and the mask of their padding."""
    generator = torch.Generator().manual_seed(4)
    tokens = torch.full((len(lengths), max(lengths)), 1)
    for row, length in zip(tokens, lengths, strict=True):
        row[:length] = torch.randint(3, ROWS, (length,), generator=generator)
    return tokens, tokens.ne(1).long()


def two_levels(head="Model", layers=5, **settings):
    """One with a second level that is large enough to be missed, and three global tokens."""
    settings = {**LEVELS, "max_position_embeddings": 300, "global_tokens": 3, **settings}
    model = own_class(head).from_short(short_model(head, num_hidden_layers=layers), **settings)
    enlarge(model, ".pooled_", ".global_")
    return model


@pytest.mark.parametrize("settings", [{}, {"pool_alignment": "query", "separate_global_projections": True}])
@torch.no_grad()
def test_the_encoder_is_what_the_equations_say(settings):
    """Token by token in double precision; angles are float32, as transformers computes them."""
    model, (tokens, mask) = two_levels(**settings).double(), batch((26, 17))
    padding = mask == 0
    is_global = (torch.arange(26) < 3) & ~padding
    x = model.embeddings(tokens)
    for number, layer in enumerate(model.layers):
        is_full = number in (0, 3)
        theta = model.config.rope_parameters["full_attention" if is_full else "sliding_attention"]["rope_theta"]
        assert layer.attn.window.left == (3 if is_full else WINDOW)
        assert (layer.attn.global_q_proj is not None) == (is_full and "separate_global_projections" in settings)
        globals_here = is_global if is_full else torch.zeros_like(is_global)
        x = x + expected_output(layer.attn, layer.attn_norm(x), globals_here, padding, theta)
        x = x + layer.mlp(layer.mlp_norm(x))
    states = model(tokens, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(states[mask.bool()], model.final_norm(x)[mask.bool()], rtol=0, atol=1e-5)


@pytest.mark.parametrize("head", HEADS)
@torch.no_grad()
def test_a_folder_opens_as_it_was_saved(tmp_path, head):
    model = two_levels(head, rope_type="yarn", dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    auto = getattr(transformers, "AutoModel" if head == "Model" else f"AutoModel{head}")
    again, info = auto.from_pretrained(tmp_path, dtype=torch.bfloat16, output_loading_info=True)
    assert type(again) is type(model)
    assert not any(info.values())
    tokens, mask = batch()
    inputs = {"input_ids": tokens, "attention_mask": mask}
    inputs = {name: x[None] for name, x in inputs.items()} if head == "ForMultipleChoice" else inputs
    saved, opened = (tuple(m.eval()(**inputs).values()) for m in (model, again))
    assert all(map(torch.equal, saved, opened))
    assert again.base_model.rotary_emb.full_attention_inv_freq.dtype == torch.float32
    assert "ModernBert" in (tmp_path / "README.md").read_text()
    short_model(head).save_pretrained(tmp_path / "short")
    with pytest.raises(ValueError, match=r"is a modernbert: .*from_short makes a long model of it"):
        own_class(head).from_pretrained(tmp_path / "short")


class Encoder(nn.Module):
    """The inputs and the output that an exported encoder has."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


@pytest.mark.full
def test_an_exported_encoder_takes_any_length():
    """The recipe of the documents, which is tested, too, exports pools of dynamic convolution."""
    model = two_levels(layers=2, separate_global_projections=True, pool_type="max", pool_stride=2)
    rows, tokens = torch.export.Dim("rows", min=1, max=64), torch.export.Dim("tokens", min=5, max=300)
    shapes = {"input_ids": {0: rows, 1: tokens}, "attention_mask": {0: rows, 1: tokens}}
    program = torch.export.export(Encoder(model), batch((90, 60)), dynamic_shapes=shapes, strict=False)
    for length in (5, 63, 64, 65, 300):
        tokens, mask = batch((length, max(1, length // 2)))
        with torch.no_grad():
            expected = model(tokens, attention_mask=mask).last_hidden_state[mask.bool()]
        torch.testing.assert_close(program.module()(tokens, mask)[mask.bool()], expected, rtol=0, atol=1e-5)


def frequencies(**settings):
    """Frequencies of full attention and of windows, and the factor of cos and sin, for 64 tokens made 1,024."""
    model = PoolingformerModernBertModel.from_short(short_model(), max_position_embeddings=1024, **settings)
    rotary = model.rotary_emb
    return rotary.full_attention_inv_freq, rotary.sliding_attention_inv_freq, rotary.full_attention_attention_scaling


def test_positions_beyond_the_bases_are_scaled_as_asked():
    plain, local, _ = frequencies()
    theirs = transformers.ModernBertModel(transformers.ModernBertConfig(**SIZES)).rotary_emb
    assert torch.equal(plain, theirs.full_attention_inv_freq)
    for kind, dynamic_type in (("linear", "linear"), ("ntk", "dynamic"), ("yarn", "yarn")):
        actual, same, factor = frequencies(rope_type=kind)
        assert torch.equal(same, local)
        assert torch.equal(same, theirs.sliding_attention_inv_freq)
        config = transformers.ModernBertConfig(**SIZES)
        parameters = {"rope_type": dynamic_type, "factor": 1.0 if kind == "ntk" else 16.0}
        config.rope_parameters["full_attention"] |= parameters
        expected, scaling = ROPE_INIT_FUNCTIONS[dynamic_type](config, seq_len=1024, layer_type="full_attention")
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=0)
        assert factor == scaling
        assert (actual - plain).abs().max() > 1e-3
    assert torch.equal(frequencies(rope_type="linear")[0] * 16, plain)
    scaled = {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 160000.0}}}
    assert torch.equal(frequencies(**scaled)[0] * 2, plain)
    with pytest.raises(ValueError, match="rope_type='ntk', but the base's positions are scaled already"):
        frequencies(rope_type="ntk", **scaled)
    with pytest.raises(ValueError, match="rope_type must be one of default, linear, ntk, yarn, got 'dynamic'"):
        frequencies(rope_type="dynamic")
    with pytest.raises(ValueError, match="rope_type='ntk' needs original_max_position_embeddings"):
        PoolingformerModernBertModel(PoolingformerModernBertConfig(**SIZES, rope_type="ntk"))


def test_settings_of_layers(tmp_path):
    config = PoolingformerModernBertConfig(**SIZES)
    assert (config.window_size, config.pooled_layers) == ("128,5,5,128,5", "0,3")
    config = PoolingformerModernBertConfig(**SIZES, window_size=[1, 2, 3, "all", 4], pooled_layers=[1])
    model = PoolingformerModernBertModel(config)
    assert [layer.attn.window.left for layer in model.layers] == [1, 2, 3, UNLIMITED, 4]
    assert [layer.attn.pooling is not None for layer in model.layers] == [False, True, False, False, False]
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path, window_size="7", pooled_layers=None)
    assert (again.config.window_size, again.config.pooled_layers) == ("7,5,5,7,5", "0,3")
    assert [layer.attn.window.left for layer in again.layers] == [7, 5, 5, 7, 5]
    with pytest.raises(ValueError, match="has no setting relative_attention"):
        PoolingformerModernBertModel.from_short(short_model(), relative_attention="c2p")


@torch.no_grad()
def test_folders_of_older_transformers_are_read(tmp_path):
    """As those on the Hub are, with a number in place of the layers' types and two settings of the angles."""
    short = short_model()
    short.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("layer_types", "rope_parameters"):
        del config[name]
    config |= {"global_attn_every_n_layers": 2, "global_rope_theta": 90.0, "local_rope_theta": 80.0}
    config |= {"position_embedding_type": "absolute", "reference_compile": False, "repad_logits_with_grad": False}
    (tmp_path / "config.json").write_text(json.dumps(config))
    short = transformers.ModernBertModel.from_pretrained(tmp_path).eval()
    long = PoolingformerModernBertModel.from_short(tmp_path, max_position_embeddings=500, **WIDE)
    assert [layer.attn.window.left for layer in long.layers] == [UNLIMITED, 5, UNLIMITED, 5, UNLIMITED]
    tokens, mask = batch()
    expected, actual = (model(tokens, attention_mask=mask).last_hidden_state for model in (short, long))
    torch.testing.assert_close(actual[mask.bool()], expected[mask.bool()], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match=r"input of 501 tokens, the model takes 500 \(max_position_embeddings\)"):
        long(torch.zeros(1, 501, dtype=torch.long))


def test_a_new_model_is_initialized_as_modernbert_is():
    sizes = {**SIZES, "hidden_size": 96, "initializer_range": 0.1}
    model = PoolingformerModernBertModel(PoolingformerModernBertConfig(**sizes))
    attention = model.layers[3].attn
    for name, std in (("q_proj", 0.1), ("pooled_v_proj", 0.1), ("out_proj", 0.1 / 10**0.5)):
        weight = getattr(attention, name).weight
        assert weight.std().item() == pytest.approx(0.88 * std, rel=0.05)  # of a normal cut off at two deviations
        assert weight.abs().max() <= 2 * std
    assert attention.pooled_k_pool_weight.std().item() == pytest.approx(0.02, rel=0.2)


def test_dropout_is_modernberts():
    config = PoolingformerModernBertConfig(**{**SIZES, "max_position_embeddings": 500}, attention_dropout=0.25)
    model = PoolingformerModernBertModel(config)
    for layer in model.layers:
        assert (layer.attn.dropout, layer.attn.out_drop.p) == (0.25, 0.25)
    attention = model.layers[1].attn.train()
    nn.init.zeros_(attention.out_proj.weight)
    attention.out_proj.bias = nn.Parameter(torch.ones(24))
    tokens = torch.zeros(1, 500, dtype=torch.long)
    dropped = {}
    attention.register_forward_hook(lambda module, inputs, output: dropped.update(states=output[0]))
    model(tokens)
    assert dropped["states"].eq(0).float().mean().item() == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], (64, "0,3", "default")), (["--max-tokens", 900, "--rope-type", "linear"], (900, "0,3", "linear"))],
)
def test_from_short_on_the_command_line(tmp_path, capsys, arguments, expected):
    source = tmp_path / "short"
    short_model("ForMaskedLM").save_pretrained(source)
    word_tokenizer("[CLS]", "[PAD]", "[SEP]", "[UNK]", "word", pad_token="[PAD]").save_pretrained(source)
    assert run("from-short", source, tmp_path / "long", "--window-size", 4, *arguments) == 0
    printed = capsys.readouterr().out
    assert f"PoolingformerModernBertForMaskedLM for {expected[0]} tokens, window_size 4,5,5,4,5" in printed
    config = AutoModelForMaskedLM.from_pretrained(tmp_path / "long").config
    assert (config.max_position_embeddings, config.pooled_layers, config.rope_type) == expected
    assert config.original_max_position_embeddings == 64
    assert run("from-short", source, tmp_path / "no", "--relative-attention", "c2p") == 1
    assert "made of a modernbert has no --relative-attention" in capsys.readouterr().err
