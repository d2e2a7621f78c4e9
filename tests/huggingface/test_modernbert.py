"""Poolingformer-ModernBERT against transformers' ModernBERT, and against the equations."""

import json

import pytest
import torch
import transformers
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.attention.patterns import UNLIMITED
from fairseq_poolingformer.huggingface import (
    PoolingformerModernBertConfig,
    PoolingformerModernBertForMultipleChoice,
    PoolingformerModernBertForSequenceClassification,
    PoolingformerModernBertModel,
)
from fairseq_poolingformer.show import look
from fairseq_poolingformer.show.looks import ONE, TWO
from tests.attention.test_modules import expected_output
from tests.huggingface.test_tools import Encoder, dynamic
from tests.huggingface.tiny_models import MERGED
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
    """A random ModernBERT, every parameter of which is large enough to be missed."""
    torch.manual_seed(1)
    model = getattr(transformers, f"ModernBert{head}")(transformers.ModernBertConfig(**{**SIZES, **changes})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (0.1 if "norm" in name else 0.2))
    return model


def batch(lengths=LENGTHS, left=False):
    """(B, T) random ids, and the mask of their padding on one side."""
    generator = torch.Generator().manual_seed(4)
    tokens = torch.full((len(lengths), max(lengths)), 1)
    for row, length in zip(tokens, lengths, strict=True):
        row[max(lengths) - length if left else 0 :][:length] = torch.randint(3, ROWS, (length,), generator=generator)
    return tokens, tokens.ne(1).long()


@torch.no_grad()
def test_in_single_precision_and_with_inputs_of_the_users_own():
    """Embeddings, positions, and the first token's class with padding on the left."""
    short, (tokens, mask) = short_model(), batch()
    long = PoolingformerModernBertModel.from_short(short, **WIDE)
    assert long.config.max_position_embeddings == 64
    embedded = short.get_input_embeddings()(tokens)
    positions = torch.arange(40).flip(0)[None] * 2
    for inputs in ({"input_ids": tokens}, {"inputs_embeds": embedded, "position_ids": positions}):
        expected, actual = (model(**inputs, attention_mask=mask).last_hidden_state for model in (short, long))
        torch.testing.assert_close(actual[mask.bool()], expected[mask.bool()], rtol=0, atol=1e-5)
    classifier = PoolingformerModernBertForSequenceClassification.from_short(
        short_model("ForSequenceClassification"), **LEVELS
    )
    expected = classifier(tokens, attention_mask=mask).logits
    left, left_mask = batch(left=True)
    torch.testing.assert_close(classifier(left, attention_mask=left_mask).logits, expected, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match=r"input of 65 tokens, the model takes 64 \(max_position_embeddings\)"):
        long(torch.zeros(1, 65, dtype=torch.long))


@torch.no_grad()
def test_level_two_over_pools_of_one_token_is_full_attention(doubles):
    """It reads the layer's input with level one's weights, so that both levels are the same, and W_o doubles.

    In one softmax with a window, W_o stays.
    """
    short = short_model().double()
    tokens, mask = batch()
    expected = short(tokens, attention_mask=mask).last_hidden_state
    merged = PoolingformerModernBertModel.from_short(short, **MERGED)
    actual = merged(tokens, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(actual[mask.bool()], expected[mask.bool()], rtol=0, atol=1e-12)
    same = {"pool_kernel_size": 1, "pool_stride": 1, "pool_type": "mean", "pool_mix": True, "pool_share_weights": True}
    long = PoolingformerModernBertModel.from_short(short, window_size="all", pooled_window_size="all", **same)
    assert [layer.attn.pooling is not None for layer in long.layers] == [True, False, False, True, False]
    for layer in (0, 3):
        short.layers[layer].attn.Wo.weight.mul_(2)
    expected, actual = (model(tokens, attention_mask=mask).last_hidden_state for model in (short, long))
    torch.testing.assert_close(actual[mask.bool()], expected[mask.bool()], rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_second_level_starts_as_a_copy_or_silent(doubles):
    short, (tokens, mask) = short_model().double(), batch()
    silent, copied = (
        PoolingformerModernBertModel.from_short(short, window_size="all", pooled_init=start)
        for start in ("copy-zero-values", "copy")
    )
    expected = short(tokens, attention_mask=mask).last_hidden_state[mask.bool()]
    actual = silent(tokens, attention_mask=mask).last_hidden_state[mask.bool()]
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    attention, fused = copied.layers[3].attn, short.layers[3].attn.Wqkv.weight
    for x, weight in zip("qkv", fused.chunk(3), strict=True):
        assert torch.equal(getattr(attention, f"{x}_proj").weight, weight)
        assert torch.equal(getattr(attention, f"pooled_{x}_proj").weight, weight)
    assert attention.pooled_q_proj.bias is None
    assert (copied(tokens, attention_mask=mask).last_hidden_state[mask.bool()] - expected).abs().max() > 0.1


def two_levels(head="Model", layers=5, **settings):
    """One with a second level that is large enough to be missed, and three global tokens."""
    settings = {**LEVELS, "max_position_embeddings": 300, "global_tokens": 3, **settings}
    model = own_class(head).from_short(short_model(head, num_hidden_layers=layers), **settings)
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".pooled_" in name or ".global_" in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.mark.parametrize("settings", [{}, {"pool_alignment": "query", "separate_global_projections": True}])
@torch.no_grad()
def test_the_encoder_is_what_the_equations_say(settings):
    """Token by token in double precision; angles are float32, as transformers computes them."""
    model, (tokens, mask) = two_levels(**settings).double(), batch((26, 17))
    padding = mask == 0
    first = (torch.arange(26) < 3) & ~padding
    x = model.embeddings(tokens)
    for number, layer in enumerate(model.layers):
        is_full = number in (0, 3)
        theta = model.config.rope_parameters["full_attention" if is_full else "sliding_attention"]["rope_theta"]
        assert layer.attn.window.left == (3 if is_full else WINDOW)
        assert (layer.attn.global_q_proj is not None) == (is_full and "separate_global_projections" in settings)
        globals_here = first if is_full else torch.zeros_like(first)
        x = x + expected_output(layer.attn, layer.attn_norm(x), globals_here, padding, theta)
        x = x + layer.mlp(layer.mlp_norm(x))
    found = model(tokens, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(found[mask.bool()], model.final_norm(x)[mask.bool()], rtol=0, atol=1e-5)


@torch.no_grad()
def test_padding_and_holes_are_as_if_they_were_not_there():
    model = two_levels().double()
    tokens, _ = batch((31,))
    alone = model(tokens).last_hidden_state
    wide, wide_mask = torch.full((2, 37), 1), torch.zeros(2, 37, dtype=torch.long)
    places = [n for n in range(37) if n not in (2, 7, 8, 20, 35, 36)]
    wide[0, places], wide_mask[0, places] = tokens[0], 1
    wide[1, 6:], wide_mask[1, 6:] = tokens[0], 1
    found = model(wide, attention_mask=wide_mask).last_hidden_state
    torch.testing.assert_close(found[0, places], alone[0], rtol=0, atol=1e-10)
    torch.testing.assert_close(found[1, 6:], alone[0], rtol=0, atol=1e-10)


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
    given = {"input_ids": tokens, "attention_mask": mask}
    given = {name: x[None] for name, x in given.items()} if head == "ForMultipleChoice" else given
    first, second = (tuple(m.eval()(**given).values()) for m in (model, again))
    assert all(map(torch.equal, first, second))
    assert again.base_model.rotary_emb.full_attention_inv_freq.dtype == torch.float32
    assert "ModernBert" in (tmp_path / "README.md").read_text()
    short_model(head).save_pretrained(tmp_path / "short")
    with pytest.raises(ValueError, match=r"is a modernbert: .*from_short makes a long model of it"):
        own_class(head).from_pretrained(tmp_path / "short")


@pytest.mark.full
@pytest.mark.skipif(not hasattr(torch.compiler, "is_exporting"), reason="this PyTorch does not say that it exports")
def test_an_exported_encoder_takes_any_length():
    model = two_levels(layers=2, separate_global_projections=True)
    program = torch.export.export(Encoder(model), batch((90, 60)), dynamic_shapes=dynamic(5, 300), strict=False)
    for length in (5, 63, 64, 65, 300):
        tokens, mask = batch((length, max(1, length // 2)))
        with torch.no_grad():
            expected = model(tokens, attention_mask=mask).last_hidden_state[mask.bool()]
        torch.testing.assert_close(program.module()(tokens, mask)[mask.bool()], expected, rtol=0, atol=1e-5)


def frequencies(**settings):
    """Those of full attention and of windows, and the factor of cos and sin, for 64 tokens made 1,024."""
    model = PoolingformerModernBertModel.from_short(short_model(), max_position_embeddings=1024, **settings)
    found = model.rotary_emb
    return found.full_attention_inv_freq, found.sliding_attention_inv_freq, found.full_attention_attention_scaling


def test_positions_beyond_the_bases_are_scaled_as_asked():
    plain, local, _ = frequencies()
    theirs = transformers.ModernBertModel(transformers.ModernBertConfig(**SIZES)).rotary_emb
    assert torch.equal(plain, theirs.full_attention_inv_freq)
    for kind, dynamic_type in (("linear", "linear"), ("ntk", "dynamic"), ("yarn", "yarn")):
        actual, same, factor = frequencies(rope_type=kind)
        assert torch.equal(same, local)
        assert torch.equal(same, theirs.sliding_attention_inv_freq)
        config = transformers.ModernBertConfig(**SIZES)
        own = {"rope_type": dynamic_type, "factor": 1.0 if kind == "ntk" else 16.0}
        config.rope_parameters["full_attention"] |= own
        expected, scaling = ROPE_INIT_FUNCTIONS[dynamic_type](config, seq_len=1024, layer_type="full_attention")
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=0)
        assert factor == scaling
        assert (actual - plain).abs().max() > 1e-3
    assert torch.equal(frequencies(rope_type="linear")[0] * 16, plain)
    given = {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 160000.0}}}
    assert torch.equal(frequencies(**given)[0] * 2, plain)
    with pytest.raises(ValueError, match="rope_type='ntk', but the base's positions are scaled already"):
        frequencies(rope_type="ntk", **given)
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


@pytest.mark.full
@torch.no_grad()
def test_compiled_models_compute_the_same():
    model, (tokens, mask) = two_levels(layers=2), batch()
    compiled = torch.compile(model, backend="eager")
    actual, expected = (m(tokens, attention_mask=mask).last_hidden_state[mask.bool()] for m in (compiled, model))
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def test_a_new_model_is_initialized_as_modernbert_is():
    sizes = {**SIZES, "hidden_size": 96, "initializer_range": 0.1}
    model = PoolingformerModernBertModel(PoolingformerModernBertConfig(**sizes))
    attention = model.layers[3].attn
    for name, std in (("q_proj", 0.1), ("pooled_v_proj", 0.1), ("out_proj", 0.1 / 10**0.5)):
        weight = getattr(attention, name).weight
        assert weight.std().item() == pytest.approx(0.88 * std, rel=0.05)  # of a normal cut off at two deviations
        assert weight.abs().max() <= 2 * std
    assert attention.pooled_k_pool_weight.std().item() == pytest.approx(0.02, rel=0.2)


@torch.no_grad()
def test_a_choice_takes_masks_of_every_text():
    model = two_levels("ForMultipleChoice", classifier_pooling="mean")
    tokens = batch((20, 20, 20))[0][None]
    globals_at = torch.zeros_like(tokens)
    globals_at[..., 10] = 1
    plain, found = model(tokens).logits, model(tokens, global_attention_mask=globals_at).logits
    assert plain.shape == (1, 3)
    assert (plain - found).abs().max() > 1e-4
    assert AutoModelForMultipleChoice._model_mapping[type(model.config)] is PoolingformerModernBertForMultipleChoice


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
    attention.register_forward_hook(lambda module, given, output: dropped.update(found=output[0]))
    model(tokens)
    assert dropped["found"].eq(0).float().mean().item() == pytest.approx(0.25, abs=0.03)


def add_tokenizer(folder):
    """One that knows a word."""
    model = {"type": "WordLevel", "vocab": {"[CLS]": 0, "[PAD]": 1, "[UNK]": 3, "word": 4}, "unk_token": "[UNK]"}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model, "added_tokens": []}))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]")
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], (64, "0,3", "default")), (["--max-tokens", 900, "--rope-type", "linear"], (900, "0,3", "linear"))],
)
def test_from_short_on_the_command_line(tmp_path, capsys, arguments, expected):
    source = tmp_path / "short"
    short_model("ForMaskedLM").save_pretrained(source)
    add_tokenizer(source)
    assert run("from-short", source, tmp_path / "long", "--window-size", 4, *arguments) == 0
    printed = capsys.readouterr().out
    assert f"PoolingformerModernBertForMaskedLM for {expected[0]} tokens, window_size 4,5,5,4,5" in printed
    config = AutoModelForMaskedLM.from_pretrained(tmp_path / "long").config
    assert (config.max_position_embeddings, config.pooled_layers, config.rope_type) == expected
    assert config.original_max_position_embeddings == 64
    assert run("from-short", source, tmp_path / "no", "--relative-attention", "c2p") == 1
    assert "made of a modernbert has no --relative-attention" in capsys.readouterr().err


def test_its_looks_are_shown(tmp_path):
    add_tokenizer(tmp_path)
    found = look(two_levels(), "word word. " * 20, tokenizer=AutoTokenizer.from_pretrained(tmp_path))
    assert {kind: view.layers for kind, view in found.views.items()} == {ONE: [0, 1, 2, 3, 4], TWO: [0, 3]}
