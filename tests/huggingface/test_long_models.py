"""Long models from LED, Longformer, mBART and XLM-R, in Python and on the command line."""

import pytest
import torch
import transformers
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer, LongformerForQuestionAnswering

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.choices import UNLIMITED
from fairseq_poolingformer.huggingface import (
    PoolingformerBartConfig,
    PoolingformerBartForConditionalGeneration,
    PoolingformerMBartConfig,
    PoolingformerRobertaConfig,
    PoolingformerRobertaForMaskedLM,
    PoolingformerRobertaForMultipleChoice,
    PoolingformerRobertaForQuestionAnswering,
)
from fairseq_poolingformer.settings import DEFAULTS
from fairseq_poolingformer.weights.convert import to_fairseq
from fairseq_poolingformer.weights.files import read_config, read_huggingface_weights
from tests.huggingface.test_bart import outputs
from tests.huggingface.tiny_models import WIDE
from tests.models import tiny_huggingface
from tests.weights.conftest import run
from tests.weights.encoders import batch, globals_at


@torch.no_grad()
def test_an_led_opens_as_a_poolingformer_without_level_two(tmp_path):
    led = tiny_huggingface.model("led")
    led.save_pretrained(tmp_path)
    ours = PoolingformerBartForConditionalGeneration.from_pretrained(tmp_path)
    assert (ours.config.pooled_layers, ours.config.window_size) == ("none", "2,4,2")
    assert (ours.config.max_position_embeddings, ours.config.max_decoder_position_embeddings) == (48, 20)
    source, target = tiny_huggingface.batch(length=45)
    mask = globals_at(source, [0, 7], [0], [0, 2]).long()
    expected = led(source, attention_mask=source.ne(1).long(), decoder_input_ids=target, global_attention_mask=mask)
    _, logits = outputs(ours, source, target, global_attention_mask=mask)
    torch.testing.assert_close(logits, expected.logits, rtol=0, atol=1e-5)
    longer = PoolingformerBartForConditionalGeneration.from_short(led, max_position_embeddings=90, pooled_layers="1-2")
    assert longer.model.encoder.layers[1].self_attn.pooling is not None
    table = longer.model.encoder.embed_positions.weight
    assert torch.equal(table[2:50], led.led.encoder.embed_positions.weight)
    assert torch.equal(table[50:], table[2:44])
    loading = {"dtype": torch.bfloat16, "local_files_only": True, "attn_implementation": "eager", "global_tokens": 3}
    half = PoolingformerBartForConditionalGeneration.from_pretrained(tmp_path, **loading)
    assert (half.dtype, half.config._attn_implementation, half.config.global_tokens) == (torch.bfloat16, "eager", 3)


@pytest.mark.parametrize("head", ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"])
@torch.no_grad()
def test_a_longformer_opens_as_a_poolingformer_without_level_two(tmp_path, head):
    """With the user's global tokens, and for a text with those of transformers' class."""
    ours, theirs = getattr(huggingface, f"PoolingformerRoberta{head}"), getattr(transformers, f"Longformer{head}")
    source = tiny_huggingface.folder(tmp_path / "short", "longformer", theirs)
    tokens = batch((46, 1, 31))
    masks = {"attention_mask": tokens.ne(1).long(), "global_attention_mask": globals_at(tokens, [0, 9], [0], [0, 4])}
    text = AutoTokenizer.from_pretrained(source)(" the thing in the inn, ate", return_tensors="pt")
    longformer, opened = theirs.from_pretrained(source).eval(), ours.from_pretrained(source).eval()
    opened.save_pretrained(tmp_path / "long")
    for inputs in ({"input_ids": tokens, **masks}, text):
        expected = longformer(**inputs)[0]
        real = inputs["attention_mask"].bool() if expected.shape[:2] == inputs["input_ids"].shape else ...
        for model in (opened, ours.from_pretrained(tmp_path / "long").eval()):
            torch.testing.assert_close(model(**inputs)[0][real], expected[real], rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_longformers_head_for_questions_asks_for_the_global_tokens(tmp_path):
    tiny_huggingface.model("longformer", LongformerForQuestionAnswering).save_pretrained(tmp_path)
    for ours in (PoolingformerRobertaForQuestionAnswering, PoolingformerRobertaForMultipleChoice):
        with pytest.raises(ValueError, match=r"makes the question or the choices global, and .*: give global_tokens=0"):
            ours.from_pretrained(tmp_path)
    tokens = torch.tensor([[0, 9, 8, 7, 2, 2, *range(10, 30), 2]])  # <s> question </s></s> text </s>
    mask = torch.zeros_like(tokens).index_fill(1, torch.arange(4), 1)
    opened = PoolingformerRobertaForQuestionAnswering.from_pretrained(tmp_path, global_tokens=0).eval()
    expected = LongformerForQuestionAnswering.from_pretrained(tmp_path).eval()(tokens).start_logits
    actual = opened(tokens, global_attention_mask=mask).start_logits
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_an_xlm_r_becomes_long(tmp_path, caplog):
    short = tiny_huggingface.model("xlm-roberta")
    short.save_pretrained(tmp_path)
    long = PoolingformerRobertaForMaskedLM.from_short(tmp_path, max_position_embeddings=80, **WIDE)
    assert "to instantiate a model of type" not in caplog.text
    tokens = batch()
    actual, expected = (model(tokens, attention_mask=tokens.ne(1).long()).logits for model in (long, short))
    torch.testing.assert_close(actual[tokens.ne(1)], expected[tokens.ne(1)], rtol=0, atol=1e-5)


def test_unknown_settings_are_named():
    short, ours = tiny_huggingface.model("bart"), PoolingformerBartForConditionalGeneration
    for settings, words in (
        ({"windowsize": 3}, "PoolingformerBartConfig has no setting windowsize; arguments of from_pre"),
        ({"pooled_layers": "last"}, r"^pooled_layers must be none, or 0-based .* got 'last'"),
        ({"pooled_layers": "9"}, r"^pooled_layers='9' names layer 9, but the encoder has layers 0 to 2"),
        ({"pooled_layers": "1", "global_tokens": "2"}, "^global_tokens must be 0 or more, got '2'"),
        ({"pooled_init": "level_one"}, "^pooled_init must be one of random, copy, copy-zero-values; got 'level_one'"),
    ):
        with pytest.raises(ValueError, match=words):
            ours.from_short(short, **settings)


@pytest.mark.parametrize("pooled_layers", [2, [2], "2"])
@torch.no_grad()
def test_settings_of_layers_are_text_or_lists(pooled_layers, tmp_path):
    short, ours = tiny_huggingface.model("bart"), PoolingformerBartForConditionalGeneration
    long = ours.from_short(short, pooled_layers=pooled_layers, window_size=[3, 4, "all"])
    attentions = [layer.self_attn for layer in long.model.encoder.layers]
    assert [attention.pooling is not None for attention in attentions] == [False, False, True]
    assert [attention.window.left for attention in attentions] == [3, 4, UNLIMITED]
    long.save_pretrained(tmp_path)
    source, target = tiny_huggingface.batch()
    opened = ours.from_pretrained(tmp_path)
    torch.testing.assert_close(outputs(opened, source, target)[1], outputs(long, source, target)[1], rtol=0, atol=1e-5)
    settings = to_fairseq(read_config(tmp_path), read_huggingface_weights(tmp_path)).settings
    assert (str(settings["pooled_layers"]), settings["window_size"]) == ("2", "3,4,all")


def test_a_long_model_is_where_and_as_the_short_one_is():
    short, ours = tiny_huggingface.model("bart"), PoolingformerBartForConditionalGeneration
    short.generation_config.num_beams = 4
    long = ours.from_short(short, dtype="bfloat16")
    assert (long.dtype, long.config._attn_implementation) == (torch.bfloat16, "eager")
    long.generation_config.num_beams += 1
    assert short.generation_config.num_beams == 4
    assert ours.from_short(short.half()).dtype == torch.float16
    assert ours.from_short(short.to("meta")).device.type == "meta"


def test_defaults_are_those_of_the_flags():
    flags = DEFAULTS
    for cls in (PoolingformerBartConfig, PoolingformerMBartConfig, PoolingformerRobertaConfig):
        config = cls()
        defaults = {name: getattr(config, name) for name in flags if hasattr(config, name)}
        expected = {**flags, "pooled_layers": "6-8" if cls is PoolingformerRobertaConfig else "6-11"}
        assert defaults == {name: expected[name] for name in defaults}
        assert len(defaults) == len(flags) - 3 * (cls is not PoolingformerRobertaConfig)
        assert config.max_position_embeddings == 4096 + 2 * (cls is PoolingformerRobertaConfig)
        assert getattr(config, "max_decoder_position_embeddings", 1024) == 1024


def test_a_second_process_writes_no_file(tmp_path):
    source = tiny_huggingface.folder(tmp_path / "short", "roberta")
    model = PoolingformerRobertaForMaskedLM.from_short(source)
    model.save_pretrained(tmp_path / "second", is_main_process=False)
    assert not [path for path in (tmp_path / "second").rglob("*") if path.is_file()]
    model.save_pretrained(tmp_path / "first")
    written = {path.name for path in (tmp_path / "first").iterdir()}
    assert {"README.md", "model.safetensors", "tokenizer.json"} <= written


def test_a_configuration_shows_all_its_settings():
    shown = repr(PoolingformerRobertaConfig(hidden_size=36, window_size="7"))
    assert '"hidden_size": 36' in shown
    assert '"window_size": "7"' in shown


@pytest.mark.parametrize(
    ("kind", "auto", "arguments", "expected"),
    [
        ("bart", AutoModelForSeq2SeqLM, ["--max-tokens", 60, "--pooled-layers", "2", "--pool-mix"], (60, "2", True)),
        ("led", AutoModelForSeq2SeqLM, [], (48, "none", False)),
        (
            "roberta",
            AutoModelForMaskedLM,
            ["--max-tokens", 60, "--relative-attention", "c2p", "--global-tokens", 0],
            (62, "1-2", False),
        ),
    ],
)
def test_from_short_on_the_command_line(tmp_path, capsys, kind, auto, arguments, expected):
    source = tiny_huggingface.folder(tmp_path / "short", kind)
    assert run("from-short", source, tmp_path / "long", "--window-size", "4", *arguments) == 0
    assert f"for {expected[0] - 2 * (kind == 'roberta')} tokens, window_size 4" in capsys.readouterr().out
    model, tokenizer = auto.from_pretrained(tmp_path / "long"), AutoTokenizer.from_pretrained(tmp_path / "long")
    config = model.config
    assert (config.max_position_embeddings, config.pooled_layers, config.pool_mix) == expected
    ids = tokenizer(" the thing", return_tensors="pt")["input_ids"]
    assert (
        ids.tolist() == AutoTokenizer.from_pretrained(source)(" the thing", return_tensors="pt")["input_ids"].tolist()
    )
    assert config.global_tokens == (0 if kind == "roberta" else 1)
    assert tokenizer.model_max_length == expected[0] - 2 * (kind == "roberta")
    assert model(ids).logits.isfinite().all()


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        ("deberta", [], "models of type deberta are not made long: poolingformer convert to-fairseq makes"),
        ("bart", ["--head", "masked-lm"], "--head masked-lm: a bart becomes a model that generates"),
        ("bart", ["--relative-attention", "c2p"], "made of a bart has no --relative-attention"),
        ("bart", ["--pooled-layers", "7"], "--pooled-layers 7 names layer 7"),
    ],
)
def test_what_cannot_be_made_long_is_said(tmp_path, capsys, kind, arguments, words):
    tiny_huggingface.model(kind).save_pretrained(tmp_path / "short")
    assert run("from-short", tmp_path / "short", tmp_path / "long", *arguments) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "long").exists()
