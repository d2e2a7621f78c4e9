"""Folders of others: every weight is there, or a sentence names the file."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    RobertaForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
)

from fairseq_poolingformer.huggingface import opening
from tests.models import tiny_huggingface

AUTO = AutoModelForSequenceClassification
WEIGHTS, HEAD, BODY = "model.safetensors", "classifier.out_proj.weight", "roberta.encoder.layer.0.output.dense.weight"


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """A classifier of three labels."""
    kind = RobertaForSequenceClassification
    return tiny_huggingface.folder(tmp_path_factory.mktemp("judge") / "model", "roberta", kind, num_labels=3)


@pytest.fixture
def folder(judge, tmp_path):
    return shutil.copytree(judge, tmp_path / "model")


def change(folder, changes):
    state = changes(load_file(folder / WEIGHTS))
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / WEIGHTS, {"format": "pt"})


def renamed(prefix):
    return lambda state: {prefix + name: x for name, x in state.items()}


def without(weight):
    return lambda state: {name: x for name, x in state.items() if name != weight}


def with_zeros(name, shape=2):
    return lambda state: state | {name: torch.zeros(shape)}


@pytest.mark.parametrize(
    ("changes", "message", "is_trainable"),
    [
        (renamed(""), "", True),
        (with_zeros("roberta.pooler.dense.bias", 24), "", True),
        (renamed("_orig_mod."), "lacks weights that Roberta.* more;", False),
        (renamed("module."), "lacks weights", False),
        (without(BODY), f"lacks .*, which .*: {BODY}; save", False),
        (without(HEAD), f"lacks .*: {HEAD}", True),
        (with_zeros(HEAD, (2, 24)), f"has weights of other shapes than Roberta.*: {HEAD}", True),
        (with_zeros(BODY, (24, 41)), f"of other shapes than .*: {BODY}", False),
        (with_zeros("lm_head.bias"), "has weights that Roberta.* does not: lm_head.bias", True),
        (with_zeros("roberta.more"), "does not: roberta.more", False),
        (with_zeros("roberta.pooler.more"), "does not: roberta.pooler.more", True),
        (with_zeros("roberta.encoder.pooler.x"), "does not: roberta.encoder.pooler", False),
        (with_zeros("electra.pooler.dense.bias"), "does not: electra.pooler", True),
        (lambda state: state | {BODY: state[BODY] / 0}, f"{BODY} has values that are NaN or infinite", False),
    ],
)
def test_every_weight_is_there_or_to_be_trained(folder, changes, message, is_trainable):
    change(folder, changes)
    if not message:
        assert opening.load(AUTO, str(folder)).config.num_labels == 3
    else:
        with pytest.raises(opening.FolderError, match=f"{folder}: .*{message}"):
            opening.load(AUTO, str(folder))
    if is_trainable:
        assert opening.load(AUTO, str(folder), new_head=True).config.num_labels == 3
    else:
        with pytest.raises(opening.FolderError, match=message):
            opening.load(AUTO, str(folder), new_head=True)


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "camembert", "longformer"])
def test_classifiers_before_transformers_4_have_a_pooler_that_they_do_not_read(kind, tmp_path):
    sizes = {"vocab_size": 30, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 3}
    windows = {"attention_window": 4} if kind == "longformer" else {}
    model = AUTO.from_config(AutoConfig.for_model(kind, intermediate_size=32, **sizes, **windows)).eval()
    model.save_pretrained(tmp_path)
    body, source = model.base_model_prefix, torch.arange(3, 11)[None]
    pooler = {f"{body}.pooler.dense.weight": torch.randn(24, 24), f"{body}.pooler.dense.bias": torch.randn(24)}
    change(tmp_path, lambda state: state | pooler)
    old = opening.load(AUTO, str(tmp_path)).eval()
    assert torch.equal(old(source).logits, model(source).logits)


def test_a_body_without_a_prefix_must_be_whole(tmp_path):
    """T5's weights are encoder.…, decoder.… and shared; its head alone may be new."""
    sizes = {"d_model": 24, "d_ff": 32, "d_kv": 12, "num_layers": 1, "num_heads": 2, "tie_word_embeddings": False}
    T5ForConditionalGeneration(T5Config(vocab_size=30, **sizes)).save_pretrained(tmp_path)
    change(tmp_path, without("lm_head.weight"))
    opening.load(AutoModelForSeq2SeqLM, str(tmp_path), new_head=True)
    change(tmp_path, lambda state: {name: x for name, x in state.items() if "encoder.final" not in name})
    with pytest.raises(opening.FolderError, match=r"lacks .*encoder\.final_layer_norm\.weight"):
        opening.load(AutoModelForSeq2SeqLM, str(tmp_path), new_head=True)


def test_level_two_may_be_new(tmp_path):
    from fairseq_poolingformer.huggingface import PoolingformerRobertaForSequenceClassification as Long

    short = tiny_huggingface.folder(tmp_path / "short", "roberta", RobertaForSequenceClassification)
    Long.from_short(str(short), pool_merge="sum", pool_type="mean").save_pretrained(tmp_path / "long")
    change(tmp_path / "long", lambda state: {name: x for name, x in state.items() if "pooled_" not in name})
    with pytest.raises(opening.FolderError, match=r"lacks .*pooled_"):
        opening.load(AUTO, str(tmp_path / "long"), new_head=True)
    opening.load(AUTO, str(tmp_path / "long"), new_level=True)


INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "[" * 100_000 + "]" * 100_000, "config.json: objects or lists are nested too deeply"),
        ("config.json", "[]", "config.json: must hold an object, holds a list"),
        ("generation_config.json", '{"a"', "generation_config.json, line 1: not JSON"),
        ("tokenizer_config.json", "3", "tokenizer_config.json: must hold an object"),
        (INDEX, '{"weight_map": {"a": "../other.safetensors"}}', f"{INDEX}: weight_map must name files of this folder"),
        (INDEX, '{"weight_map": {"a": "/etc/passwd"}}', "weight_map must name files of this folder, has '/etc/passwd'"),
        (INDEX, '{"weight_map": ["a"]}', "weight_map must name files of this folder"),
        (INDEX, '{"weight_map": {"a": "b.safetensors"}}', f"b.safetensors: is missing, and {INDEX} names it"),
        (WEIGHTS, "", f"{WEIGHTS}: cut or damaged"),
    ],
)
def test_damaged_files_are_named(folder, name, content, message):
    (folder / name).write_text(content)
    with pytest.raises(opening.FolderError, match=message):
        opening.load(AUTO, str(folder))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "config.json"),
        ({"num_hidden_layers": "three"}, "config.json"),
        ({"num_attention_heads": 0}, "config.json"),
        ({"hidden_act": "never"}, "config.json .*never"),
        ({"model_type": ["bert"]}, "config.json"),
    ],
)
def test_impossible_settings_are_a_sentence(folder, settings, message):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    with pytest.raises(opening.FolderError, match=f"^{folder}: .*{message}"), opening.explained(str(folder)):
        opening.load(AUTO, str(folder), config=AutoConfig.from_pretrained(folder))


def test_cut_weights(folder):
    content = (folder / WEIGHTS).read_bytes()
    for size in (4, 100, len(content) - 7):
        (folder / WEIGHTS).write_bytes(content[:size])
        with pytest.raises(opening.FolderError, match=f"{WEIGHTS}: cut or damaged .*; fetch it again"):
            opening.load(AUTO, str(folder))


def test_a_tokenizer_with_more_rows_than_the_model(folder):
    model = opening.load(AUTO, str(folder))
    rows = model.get_input_embeddings().num_embeddings
    opening.check_ids([{"input_ids": [0, rows - 1]}], model, "me")
    with pytest.raises(opening.FolderError, match=f"me: its tokenizer gives id {rows}, and the model has {rows} rows"):
        opening.check_ids([{"input_ids": [0]}, {"input_ids": [rows]}], model, "me")


def test_other_ends_pass():
    with pytest.raises(KeyboardInterrupt), opening.explained("me"):
        raise KeyboardInterrupt
    said = r"me: its tokenizer cannot be used \(KeyError: 'x'\)"
    with pytest.raises(opening.FolderError, match=said), opening.explained("me", "its tokenizer"):
        raise KeyError("x")
