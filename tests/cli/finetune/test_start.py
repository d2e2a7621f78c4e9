"""What a training begins with: every kind of MODEL, heads that are kept or not, and what cannot be trained."""

import json

import huggingface_hub
import pytest
import torch
from huggingface_hub.utils import filter_repo_objects
from transformers import RobertaForSequenceClassification

from fairseq_poolingformer.cli.convert import write_fairseq
from fairseq_poolingformer.cli.finetune.start import _fetched, find
from fairseq_poolingformer.command import load_fairseq
from tests.models import tiny_huggingface

LABELS = ["bad", "good"]
CLASSIFICATION = "document_classification"


def labels():
    return LABELS


@pytest.fixture(scope="module", autouse=True)
def fairseq():
    load_fairseq()


def flag(flags, name):
    return flags[flags.index(name) + 1]


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    return tiny_huggingface.folder(tmp_path_factory.mktemp("bart") / "model", "bart")


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """A RoBERTa of transformers that tells bad from good."""
    names = {"id2label": dict(enumerate(LABELS)), "label2id": {name: n for n, name in enumerate(LABELS)}}
    folder = tmp_path_factory.mktemp("judge") / "model"
    return tiny_huggingface.folder(folder, "roberta", RobertaForSequenceClassification, **names)


def test_a_short_model_of_transformers_becomes_a_long_one(bart, tmp_path):
    found = find(str(bart), "long_summarization", tmp_path / "start", labels)
    flags = found.flags(2048)
    assert found.writes
    assert found.longest == 40
    assert flag(flags, "--arch") == "poolingformer_bart_base"
    assert flag(flags, "--max-source-positions") == "2048"
    assert flag(flags, "--pooled-init") == "level-one"
    assert flag(flags, "--finetune-from-model") == str(tmp_path / "start" / "model.pt")
    assert found.tokenizer == ("--gpt2-bpe", str(tmp_path / "start" / "tokenizer"))
    assert found.command[:3] == ("poolingformer", "convert", "to-fairseq")
    again = find(str(bart), "long_summarization", tmp_path / "start", labels)
    assert again.flags(2048) == flags


def test_one_that_is_long_keeps_its_windows(tmp_path):
    led = tiny_huggingface.folder(tmp_path / "led", "led")
    flags = find(str(led), "long_summarization", tmp_path / "start", labels).flags(48)
    assert flag(flags, "--arch") == "led_bart_base"
    assert flag(flags, "--window-size") == "2,4,2"
    assert "--pooled-init" not in flags


def test_a_checkpoint_of_fairseq_is_taken_as_it_is(bart, tmp_path):
    write_fairseq(bart, tmp_path / "model")
    for name in (tmp_path / "model", tmp_path / "model" / "model.pt"):
        found = find(str(name), "long_summarization", tmp_path / "start", labels)
        assert found.weights == tmp_path / "model" / "model.pt"
        assert not found.command
    assert not (tmp_path / "start").exists()


def test_one_of_this_project_keeps_its_second_level(tmp_path):
    """Also the choices that its architecture does not have, such as mean pooling."""
    folder = tmp_path / "model"
    write_fairseq(tiny_huggingface.folder(tmp_path / "hf", "roberta"), folder)
    checkpoint = torch.load(folder / "model.pt", weights_only=False)
    levels = {"window_size": "4", "pooled_layers": "1", "pool_type": "mean", "pool_mix": True, "pool_kernel_size": 3}
    levels |= {"attention_backend": "triton", "pooled_init": None}
    vars(checkpoint["args"]).update(levels, arch="poolingformer_roberta_base", max_positions=44)
    torch.save(checkpoint, folder / "model.pt")
    flags = find(str(folder), CLASSIFICATION, tmp_path / "start", labels).flags(44)
    assert [flag(flags, f"--{name}") for name in ("window-size", "pooled-layers", "pool-type")] == ["4", "1", "mean"]
    assert flag(flags, "--pool-kernel-size") == "3"
    assert "--pool-mix" in flags
    assert "--attention-backend" not in flags, "which another machine may not have"


@pytest.mark.parametrize("wanted", [["good", "bad"], ["new", "old", "other"]])
def test_a_head_is_kept_for_the_same_labels_alone(judge, tmp_path, wanted):
    for number, model in enumerate((judge, tmp_path / "start0")):  # of transformers, and of fairseq
        found = find(str(model), CLASSIFICATION, tmp_path / f"start{number}", lambda: wanted)
        state = torch.load(found.weights, weights_only=False)["model"]
        is_kept = any(name.startswith("document_classification_head.") for name in state)
        assert is_kept == (len(wanted) == 2)
        assert found.labels == (tuple(LABELS) if is_kept else ())


def test_a_head_that_is_not_kept_is_dropped_from_a_checkpoint_too(judge, tmp_path):
    find(str(judge), CLASSIFICATION, tmp_path / "kept", labels)
    found = find(str(tmp_path / "kept"), CLASSIFICATION, tmp_path / "start", lambda: ["a", "b", "c"])
    assert found.weights == tmp_path / "start" / "headless.pt"
    state = torch.load(found.weights, weights_only=False)["model"]
    assert not any("_head.dense" in name and name.startswith("document_classification") for name in state)
    assert "a new head is trained" in found.notes[0]


def test_an_architecture_begins_with_random_weights_and_no_tokenizer(tmp_path):
    found = find("poolingformer_roberta_base", CLASSIFICATION, tmp_path / "start", labels)
    assert found.flags(512) == ["--arch", "poolingformer_roberta_base", "--max-positions", "512"]
    assert found.tokenizer == ()
    assert found.is_small


@pytest.mark.parametrize(
    ("model", "task", "message"),
    [
        ("poolingformer_roberta_tiny", "long_summarization", "needs a decoder, as BART has"),
        ("demo", CLASSIFICATION, "needs an encoder alone"),
        ("poolingformer_gpt", CLASSIFICATION, "nor one of the architectures poolingformer_bart_large"),
        ("./no/such/model.pt", CLASSIFICATION, "no such file or folder"),
    ],
)
def test_what_cannot_be_trained_is_said_in_words(tmp_path, model, task, message):
    with pytest.raises(ValueError, match=message):
        find(model, task, tmp_path / "start", labels)


def test_a_family_that_fairseq_does_not_train(tmp_path):
    (tmp_path / "t5").mkdir()
    (tmp_path / "t5" / "config.json").write_text(json.dumps({"model_type": "t5"}))
    with pytest.raises(ValueError, match="a t5, and fairseq trains bart"):
        find(str(tmp_path / "t5"), "long_summarization", tmp_path / "start", labels)


@pytest.mark.parametrize("safetensors", [True, False])
def test_weights_of_the_hub_are_fetched_in_one_form(safetensors, tmp_path, monkeypatch):
    others = {"config.json", "tokenizer.json", "merges.txt", "README.md", "sentencepiece.bpe.model"}
    bins = {"pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"}
    there = [*others, *bins, "training_args.bin", "tf_model.h5", "onnx/config.json", "openvino/pytorch_model.bin"]
    there += ["model.safetensors"] * safetensors
    fetched = set()

    def snapshot_download(name, **patterns):
        fetched.update(filter_repo_objects(there, **patterns))
        for file in fetched:
            (tmp_path / file).touch()
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert _fetched("someone/model") == tmp_path
    assert fetched - {"pytorch_model.bin.index.json"} == others | (
        {"model.safetensors"} if safetensors else {"pytorch_model-00001-of-00002.bin"}
    )
