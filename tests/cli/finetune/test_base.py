"""MODEL: forms, length, refusals."""

import json

import pytest
import torch
import transformers
from transformers import AutoTokenizer, DebertaV2Config, DebertaV2ForSequenceClassification

from fairseq_poolingformer.cli.finetune.base import SYSTEMS, Base, equal_cost, find
from fairseq_poolingformer.huggingface.families import FAMILIES
from tests.huggingface import tiny_models
from tests.models import tiny_huggingface

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A tokenizer for any tiny model."""
    return tiny_huggingface.folder(tmp_path_factory.mktemp("words") / "model", "roberta")


def saved(config, model_class, words, folder):
    model_class(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(words).save_pretrained(folder)
    return str(folder)


def test_systems_differ_in_length_and_attention(roberta):
    base = Base("me", roberta, "classification")
    assert base.length == base.reads(100, None, True) == base.reads(20, None, False) == 46
    assert [base.reads(longest, None, False) for longest in (46, 47, 100)] == [46, 64, 128]
    models = {system: base.build(system, 128, ["a", "b"]) for system in SYSTEMS}
    assert [type(model).__name__ for model in models.values()] == [
        "RobertaForSequenceClassification",
        "PoolingformerRobertaForSequenceClassification",
        "PoolingformerRobertaForSequenceClassification",
    ]
    window, long = models["window"].config, models["long"].config
    assert (window.pooled_layers, long.pooled_layers != "none") == ("none", True)
    assert window.window_size == equal_cost(long)
    assert models["long"].config.id2label == {0: "a", 1: "b"}
    assert all(one.dtype == torch.float32 for model in models.values() for one in model.parameters())


def test_windows_of_equal_cost(roberta):
    """2 · w keys a token beside 2 · w1 + 2 · w2 / stride, and 0.75 · width for projections, in layers of two levels."""
    config = Base("me", roberta, "classification").build("long", 128, ["a", "b"]).config
    config.window_size, config.pooled_window_size, config.pool_stride = "4,5,6", "40", 4
    config.pooled_layers = "1-2"
    assert (config.hidden_size, config.pool_merge) == (24, "softmax")
    assert equal_cost(config) == "4,15,16"
    config.pool_merge = "sum"
    assert equal_cost(config) == "4,24,25"


def test_a_head_for_the_same_labels_is_kept(tmp_path):
    named = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    kind = transformers.RobertaForSequenceClassification
    place = str(tiny_huggingface.folder(tmp_path / "judge", "roberta", kind, **named))
    own = kind.from_pretrained(place).classifier.out_proj.weight
    base = Base("me", place, "classification")
    for system in SYSTEMS:
        same = base.build(system, 128, ["good", "bad"])
        assert same.config.id2label == {0: "bad", 1: "good"}
        assert torch.equal(same.classifier.out_proj.weight, own)
        assert base.build(system, 128, ["x", "y", "z"]).classifier.out_proj.weight.shape == (3, 24)


@pytest.mark.parametrize("kind", [kind.removeprefix("poolingformer-") for kind in FAMILIES])
def test_every_family_becomes_long(kind, words, tmp_path):
    family = FAMILIES[f"poolingformer-{kind}"]
    config = tiny_models.config(kind, vocab_size=300, max_position_embeddings=48, pad_token_id=1)
    writes = family.has_decoder
    end = "ForConditionalGeneration" if writes else "ForSequenceClassification"
    name = family.name + end
    place = saved(config, getattr(transformers, name), words, tmp_path / "model")
    base = Base("me", place, "summarization" if writes else "classification")
    labels = [] if writes else ["a", "b"]
    short, long = (base.build(system, 2 * base.length, labels) for system in ("short", "long"))
    assert type(long).__name__ == f"Poolingformer{name}"
    assert type(short).__name__ == name
    assert base.reads(base.length + 1, None, False) > base.length


def test_a_model_of_another_family_is_cut(words, tmp_path):
    config = DebertaV2Config(vocab_size=300, max_position_embeddings=32, relative_attention=True, **SIZES)
    base = Base("me", saved(config, DebertaV2ForSequenceClassification, words, tmp_path / "m"), "classification")
    assert base.reads(1000, None, False) == 32
    assert base.build("short", 32, ["a", "b"]).config.id2label == {0: "a", 1: "b"}
    with pytest.raises(ValueError, match=r"me reads 32 tokens \(models of type deberta-v2 are not made long"):
        base.reads(1000, 64, False)


def test_what_cannot_be_fine_tuned_is_refused(words, roberta, tmp_path):
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text(json.dumps({"model_type": "bert"}))
    config = tiny_models.config("t5", vocab_size=300, n_positions=40)
    t5 = Base("me", saved(config, transformers.T5ForSequenceClassification, words, tmp_path / "m"), "classification")
    for function, message in (
        (lambda: t5.reads(1000, 64, False), r"--length 64: me reads \d+ tokens \(no long T5 is for classification\)"),
        (
            lambda: Base("me", roberta, "summarization"),
            "me: a roberta, and summarization needs a decoder, as BART",
        ),
        (lambda: find(str(tmp_path / "nothing"), "classification", tmp_path), "nothing: no such checkpoint"),
        (
            lambda: find(str(tmp_path / "bare"), "classification", tmp_path),
            "bare: (has no tokenizer|its tokenizer)",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            function()


def test_the_demo_model_gets_two_levels(tmp_path):
    base = find("demo", "summarization", tmp_path)
    assert base.length == 4096
    model = base.build("long", 4096, [])
    assert (model.config.window_size, model.config.pooled_layers) == ("4,16,32,32", "2-3")
    ids = base.tokenizer("The library is in Merton.", return_tensors="pt")
    assert model(**ids, labels=ids["input_ids"]).loss < 9, "of 8.3 that a uniform guess among 4,000 has"
