"""The heads of the tasks, from fairseq to transformers and back: equal parameters and equal outputs."""

import json

import pytest
import torch
import transformers
from transformers import AutoTokenizer

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.text.dictionary import MARKS
from fairseq_poolingformer.weights import ConversionError, convert, files
from fairseq_poolingformer.weights.files import read_training, write_checkpoint
from fairseq_poolingformer.weights.heads import in_huggingface, write_config
from fairseq_poolingformer.weights.special_tokens import NAMES
from tests.tasks.folders import random_wikihop, write_wikihop
from tests.tasks.test_document_tasks import ENCODERS, make
from tests.weights.conftest import converted, run

POOLINGFORMER, LONGFORMER = ENCODERS[1], ENCODERS[0]
PLACES = torch.tensor([[0, 1, 0, 2, 0, 0, 3, 0]] * 3)
READERS = ("question_answering", "triviaqa", "hotpotqa")
TASK, INPUTS = "document_classification", {"example": torch.arange(3), "num_examples": 3}


@pytest.fixture
def folder(tmp_path):
    return write_wikihop(tmp_path / "data", {"valid": random_wikihop(2, seed=3), "train": random_wikihop(2, seed=4)})


def trained(folder, task, encoder=POOLINGFORMER):
    """A model of a task with random parameters, none of them zero, and what a checkpoint says of it."""
    labels = {"labels": ["bad", "so so", "good"]} if task == TASK else {}
    (folder / "corpus.json").write_text(json.dumps({"kind": task, **labels}))
    args, _, model = make(folder, task, *encoder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return {**vars(args), **labels}, model.eval().double()


def checkpoint(tmp_path, **corpus):
    """A folder with the checkpoint ``trained.pt`` of a classifier of documents, and its task and model."""
    folder = converted(tmp_path, "roberta")[1].parent
    (folder / "corpus.json").write_text(json.dumps({"kind": TASK, **corpus}))
    args, task, model = make(folder, TASK, *POOLINGFORMER)
    write_checkpoint(folder / "trained.pt", {**vars(args), **corpus}, model.state_dict())
    assert load(folder / "trained.pt")["task_state"] == corpus
    assert run("to-huggingface", folder / "trained.pt", tmp_path / "out") == 0
    return folder, task, model


@torch.no_grad()
def test_the_head_leaves_with_the_model(folder):
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
    global_mask, real = PLACES.eq(2) | PLACES.eq(1), tokens.ne(1)
    expected, _ = model(tokens, global_mask=global_mask & real, head_inputs=INPUTS)
    output = theirs(tokens, attention_mask=real.long(), global_attention_mask=global_mask.long())
    torch.testing.assert_close(output.logits, expected, rtol=0, atol=1e-5)


def test_one_level_and_its_head(folder):
    settings, model = trained(folder, TASK, LONGFORMER)
    converted = convert.to_huggingface(settings, model.state_dict())
    assert converted.settings["architectures"] == ["LongformerForSequenceClassification"]
    assert converted.settings["id2label"] == {"0": "bad", "1": "so so", "2": "good"}
    theirs = transformers.LongformerForSequenceClassification(transformers.LongformerConfig(**converted.settings))
    theirs.load_state_dict(converted.state)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("wikihop", r"no place for the heads: wikihop_head\..*; --drop-heads leaves"),
        (TASK, r"no matrix document_classification_head\.out_proj\.weight"),
        # transformers would ask a reader in another form: without special tokens, and the question global nowhere
        *((task, rf"--task {task}\), and .* answer with poolingformer predict, or") for task in READERS),
    ],
)
def test_heads_that_transformers_cannot_have(folder, task, message):
    settings, state = {"arch": "poolingformer_roberta_base"}, {f"{task}_head.span.weight": torch.ones(1)}
    if task not in READERS:
        settings, model = trained(folder, task)
        state = model.state_dict()
        state.pop("document_classification_head.out_proj.weight", None)
    with pytest.raises(ValueError, match=message):
        convert.to_huggingface(settings, state)


@pytest.mark.parametrize("task", ["wikihop", "triviaqa"])
def test_a_model_converts_without_its_head(folder, task):
    settings, model = trained(folder, task)
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


def test_the_command_keeps_marks_and_labels(tmp_path):
    folder, task, model = checkpoint(tmp_path, labels=["no", "yes"])
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert 'pipeline_tag: "text-classification"' in readme
    assert "AutoModelForSequenceClassification.from_pretrained" in readme
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    for mark in MARKS:
        assert tokenizer(f"the{mark}in", add_special_tokens=False).input_ids.count(task.symbols.marks[mark]) == 1
    classifier = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert classifier.config.id2label == {0: "no", 1: "yes"}
    assert run("to-fairseq", tmp_path / "out", tmp_path / "back") == 0
    settings, state, _ = read_training(tmp_path / "back" / "model.pt")
    assert (settings["task"], settings["labels"]) == (TASK, ["no", "yes"])
    expected = {n: value for n, value in model.state_dict().items() if "lm_head" not in n and n != NAMES}
    torch.testing.assert_close({name: state[name] for name in expected}, expected, rtol=0, atol=0)
    assert (tmp_path / "back" / "dict.txt").read_text() == (folder / "dict.txt").read_text()


@pytest.mark.parametrize("config", [{"problem_type": "multi_label_classification"}, {"id2label": {"0": "LABEL_0"}}])
def test_a_head_of_several_labels_or_an_amount_stays_in_transformers(config, tmp_path):
    checkpoint(tmp_path, labels=["no", "yes"])
    path = tmp_path / "out" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    with pytest.raises(ConversionError, match=r"json: problem_type .* labels: --task .* one label of two or more"):
        convert.to_fairseq(files.read_config(tmp_path / "out"), files.read_huggingface_weights(tmp_path / "out"))
