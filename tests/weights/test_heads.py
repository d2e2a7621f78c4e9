"""The heads of the tasks, from fairseq to transformers and back: equal parameters and equal outputs."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoTokenizer

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.text.dictionary import MARKS
from fairseq_poolingformer.text.labels import AMOUNT, SEVERAL
from fairseq_poolingformer.weights import ConversionError, convert
from fairseq_poolingformer.weights.files import read_training, write_checkpoint
from fairseq_poolingformer.weights.heads import in_huggingface, write_config
from fairseq_poolingformer.weights.special_tokens import NAMES
from tests.models import tiny_huggingface
from tests.tasks.folders import random_wikihop, write_wikihop
from tests.tasks.test_document_tasks import ENCODERS, make
from tests.weights.conftest import run

POOLINGFORMER, LONGFORMER = ENCODERS[1], ENCODERS[0]
PLACES = torch.tensor([[0, 1, 0, 2, 0, 0, 3, 0]] * 3)
TASK, INPUTS = "document_classification", {"example": torch.arange(3), "num_examples": 3}


@pytest.fixture
def folder(tmp_path):
    return write_wikihop(tmp_path / "data", {"valid": random_wikihop(2, seed=3), "train": random_wikihop(2, seed=4)})


def trained(folder, task, encoder=POOLINGFORMER):
    """A model of a task with random parameters, none of them zero, and what a checkpoint says of it."""
    labels = {"labels": ["bad", "so so", "good"]} if task == "document_classification" else {}
    (folder / "corpus.json").write_text(json.dumps({"kind": task, **labels}))
    args, _, model = make(folder, task, *encoder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return {**vars(args), **labels}, model.eval().double()


@torch.no_grad()
def test_the_head_leaves_with_the_model_and_comes_back(folder):
    settings, model = trained(folder, TASK)
    converted = convert.to_huggingface(settings, model.state_dict())
    (name,) = converted.settings["architectures"]
    assert name.endswith("SequenceClassification")
    cls = getattr(huggingface, name)
    config = cls.config_class(**{name: value for name, value in converted.settings.items() if name != "model_type"})
    theirs = cls(config).eval().double()
    theirs.load_state_dict(converted.state)
    torch.manual_seed(1)
    tokens = torch.randint(4, 40, (3, 8))
    tokens[:, 0], tokens[2, 7:] = 0, 1
    global_mask = PLACES.eq(2) | PLACES.eq(1)
    expected, _ = model(tokens, global_mask=global_mask & tokens.ne(1), head_inputs=INPUTS)
    inputs = {"attention_mask": tokens.ne(1).long(), "global_attention_mask": global_mask.long()}
    output = theirs(tokens, **inputs)
    torch.testing.assert_close(output.logits, expected, rtol=0, atol=1e-5)
    back = convert.to_fairseq({**converted.settings, "labels": settings.get("labels")}, dict(theirs.state_dict()))
    left = ("encoder.lm_head.", NAMES)
    kept = {name: value for name, value in model.state_dict().items() if not name.startswith(left)}
    assert all(torch.equal(back.state[name], value) for name, value in kept.items())
    assert back.settings["task"] == TASK
    assert back.settings.get("labels") == settings.get("labels")


def test_one_level_and_a_head_that_transformers_lacks(folder):
    settings, model = trained(folder, "wikihop")
    with pytest.raises(ConversionError, match=r"no place for the heads: wikihop_head\..*; --drop-heads leaves"):
        convert.to_huggingface(settings, model.state_dict())
    converted = convert.to_huggingface(settings, model.state_dict(), drop_heads=True)
    assert converted.settings["architectures"] == ["PoolingformerRobertaForMaskedLM"]
    settings, model = trained(folder, "document_classification", LONGFORMER)
    converted = convert.to_huggingface(settings, model.state_dict())
    assert converted.settings["architectures"] == ["LongformerForSequenceClassification"]
    assert converted.settings["id2label"] == {"0": "bad", "1": "so so", "2": "good"}
    theirs = transformers.LongformerForSequenceClassification(transformers.LongformerConfig(**converted.settings))
    missing, unexpected = theirs.load_state_dict(converted.state, strict=False)
    assert not unexpected
    assert not missing


@pytest.mark.parametrize("task", ["question_answering", "triviaqa", "hotpotqa"])
def test_a_reader_stays_with_the_questions_it_was_trained_on(task):
    """transformers would ask it in another form: without the special tokens, and the question global nowhere."""
    with pytest.raises(ConversionError, match=rf"--task {task}\), and .* answer with poolingformer predict, or"):
        convert.to_huggingface({"arch": "poolingformer_roberta_base"}, {f"{task}_head.span.weight": torch.ones(1)})


def test_a_reader_converts_without_its_head(folder):
    settings, model = trained(folder, "triviaqa")
    converted = convert.to_huggingface(settings, model.state_dict(), drop_heads=True)
    assert converted.settings["architectures"] == ["PoolingformerRobertaForMaskedLM"]
    spans = {"qa_outputs.weight": torch.ones(2, 24), "qa_outputs.bias": torch.ones(2)}
    with pytest.raises(ConversionError, match=r"no place for the heads: qa_outputs\..*; --drop-heads leaves"):
        convert.to_fairseq(converted.settings, {**converted.state, **spans})


def test_a_head_of_another_number_of_labels_has_them_numbered():
    state = {"document_classification_head.out_proj.weight": torch.zeros(3, 4)}
    assert write_config({"labels": ["x", "y", "z"]}, state, "")["id2label"] == {"0": "x", "1": "y", "2": "z"}
    assert write_config({"labels": ["x"]}, state, "")["label2id"] == {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}


@pytest.mark.parametrize(
    ("names", "class_name", "has_head"),
    [
        (["classifier.dense.weight", "classifier.out_proj.weight"], "", True),
        (["classifier.dense.weight"], "", False),
        (["classifier.dense.weight", "classifier.out_proj.weight"], "RobertaForTokenClassification", False),
    ],
)
def test_a_head_has_both_layers_and_the_class_of_documents(names, class_name, has_head):
    assert in_huggingface(dict.fromkeys(names, torch.zeros(1)), "roberta", class_name) == has_head


def test_the_command_keeps_marks_and_labels(tmp_path, capsys):
    """The tokenizer knows the marks; nothing changes on the way back."""
    source = tiny_huggingface.folder(tmp_path / "roberta", "roberta")
    assert run("to-fairseq", source, tmp_path / "short") == 0
    folder = tmp_path / "short"
    (folder / "corpus.json").write_text(json.dumps({"kind": "document_classification", "labels": ["no", "yes"]}))
    args, task, model = make(folder, "document_classification", *POOLINGFORMER)
    write_checkpoint(folder / "trained.pt", {**vars(args), "labels": ["no", "yes"]}, model.state_dict())
    assert load(folder / "trained.pt")["task_state"] == {"labels": ["no", "yes"]}
    assert run("to-huggingface", folder / "trained.pt", tmp_path / "hf") == 0
    readme = (tmp_path / "hf" / "README.md").read_text(encoding="utf-8")
    assert 'pipeline_tag: "text-classification"' in readme
    assert "AutoModelForSequenceClassification.from_pretrained" in readme
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    for mark in MARKS:
        assert tokenizer(f"the{mark}in", add_special_tokens=False).input_ids.count(task.symbols.marks[mark]) == 1
    classifier = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf")
    assert classifier.config.id2label == {0: "no", 1: "yes"}
    assert run("to-fairseq", tmp_path / "hf", tmp_path / "back") == 0
    settings, state, _ = read_training(tmp_path / "back" / "model.pt")
    assert (settings["task"], settings["labels"]) == ("document_classification", ["no", "yes"])
    own = model.state_dict()
    assert all(torch.equal(state[name], own[name]) for name in own if "lm_head" not in name and name != NAMES)
    assert (tmp_path / "back" / "dict.txt").read_text() == (folder / "dict.txt").read_text()
    again = load_file(tmp_path / "hf" / "model.safetensors")
    assert {"classifier.dense.weight", "classifier.out_proj.bias"} <= set(again)


@pytest.mark.parametrize("problem", [SEVERAL, AMOUNT])
def test_the_problem_type_goes_to_transformers_and_back(problem, tmp_path):
    """Its Trainer then takes the loss that fairseq's task has; the loss is the mean over the batch here."""
    source = tiny_huggingface.folder(tmp_path / "roberta", "roberta")
    assert run("to-fairseq", source, tmp_path / "short") == 0
    labels = ["no", "yes", "so so"] if problem == SEVERAL else ["amount"]
    corpus = {"kind": "document_classification", "labels": labels, "problem_type": problem}
    (tmp_path / "short" / "corpus.json").write_text(json.dumps(corpus))
    args, task, model = make(tmp_path / "short", "document_classification", *POOLINGFORMER)
    settings = {**vars(args), "labels": labels, "problem_type": problem}
    write_checkpoint(tmp_path / "short" / "trained.pt", settings, model.state_dict())
    assert load(tmp_path / "short" / "trained.pt")["task_state"] == {"labels": labels, "problem_type": problem}
    assert run("to-huggingface", tmp_path / "short" / "trained.pt", tmp_path / "hf") == 0
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf")
    assert (theirs.config.problem_type, theirs.config.num_labels) == (problem, len(labels))
    tokens = torch.tensor([[0, 5, 6, 7], [0, 8, 9, 10]])
    targets = torch.tensor([[1.0, 0, 1], [0, 0, 1]]) if problem == SEVERAL else torch.tensor([[0.5], [-1]])
    found = theirs.eval()(tokens, labels=targets)
    is_first = torch.tensor([[True, False, False, False]] * 2)
    output, _ = model.eval()(tokens, global_mask=is_first, head_inputs={"example": torch.arange(2), "num_examples": 2})
    torch.testing.assert_close(found.logits, output, atol=1e-5, rtol=0)
    key = "labels" if problem == SEVERAL else "amount"
    loss, _ = task.loss(output, {key: list(targets)})
    torch.testing.assert_close(found.loss, loss / 2, atol=1e-5, rtol=0)
    assert run("to-fairseq", tmp_path / "hf", tmp_path / "back") == 0
    settings, _, _ = read_training(tmp_path / "back" / "model.pt")
    assert (settings["labels"], settings["problem_type"]) == (labels, problem)


def test_a_head_that_lacks_a_parameter_is_named(folder):
    settings, model = trained(folder, "document_classification")
    state = {name: value for name, value in model.state_dict().items() if not name.endswith("head.out_proj.weight")}
    with pytest.raises(ValueError, match=r"no matrix document_classification_head\.out_proj\.weight"):
        convert.to_huggingface(settings, state)
