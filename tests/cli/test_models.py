"""The models of checkpoints: what is refused before anything is built."""

import os
from pathlib import Path

import pytest
import torch
from fairseq.tasks import TASK_REGISTRY

from fairseq_poolingformer.cli.models import batches, checkpoint_of, load_models
from fairseq_poolingformer.weights.files import write_checkpoint


def test_a_checkpoint_of_another_task_is_named_whatever_the_data_folder(checkpoint, tmp_path):
    path, _ = checkpoint
    with pytest.raises(ValueError, match=r"model\.pt: a checkpoint of --task char_lm; give one of --task wikihop$"):
        load_models([str(path)], "cpu", "fp32", task="wikihop", data=tmp_path)


def test_every_member_of_an_ensemble_is_of_the_task(checkpoint, data_folder, tmp_path):
    path, _ = checkpoint
    models, task = load_models([str(path), str(path)], "cpu", "fp32", task="char_lm", data=data_folder)
    assert [model.training for model in models] == [False] * 2
    (half,), _ = load_models([str(path)], "cpu", "bf16", task="char_lm", data=data_folder)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    assert isinstance(task, TASK_REGISTRY["char_lm"])
    write_checkpoint(tmp_path / "other.pt", {"task": "wikihop", "data": "", "arch": "longformer_roberta_tiny"}, {})
    with pytest.raises(ValueError, match=r"other\.pt: a checkpoint of --task wikihop; give one of --task char_lm$"):
        load_models([str(path), str(tmp_path / "other.pt")], "cpu", "fp32", task="char_lm")


def test_a_folder_with_a_model_stands_for_it(checkpoint, data_folder):
    path, _ = checkpoint
    (model,), _ = load_models([str(path.parent)], "cpu", "fp32", task="char_lm", data=data_folder)
    (expected,), _ = load_models([str(path)], "cpu", "fp32", task="char_lm", data=data_folder)
    assert all(value.equal(expected.state_dict()[name]) for name, value in model.state_dict().items())


def test_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"a folder, not a checkpoint; there is no \.pt file in it"):
        load_models([str(tmp_path)], "cpu", "fp32")
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        (tmp_path / name).touch()
    with pytest.raises(FileNotFoundError, match=r"give a file of it: checkpoint_best\.pt, checkpoint_last\.pt"):
        load_models([str(tmp_path)], "cpu", "fp32")


def test_models_of_transformers_are_no_checkpoints(tmp_path, monkeypatch):
    """A folder of Trainer's, which has .pt files, and every name that the Hub allows."""
    monkeypatch.chdir(tmp_path)
    for file in ("trainer/config.json", "trainer/optimizer.pt", "ours/config.json", "ours/model.pt"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    assert checkpoint_of(Path("ours")) == Path("ours/model.pt")
    with pytest.raises(FileNotFoundError, match=r"^trainer: a folder, not a checkpoint; transformers itself runs"):
        checkpoint_of(Path("trainer"))
    for name in ("org/model-v0.4", "t5-small"):
        with pytest.raises(
            FileNotFoundError, match=f"^{name}: no such checkpoint; of a model of the Hugging Face Hub, "
        ):
            checkpoint_of(Path(name))
    os.mkfifo("pipe.pt")
    for path in ("run/checkpoint_best.pt", "a/b/c", "/nowhere", "pipe.pt"):
        with pytest.raises(FileNotFoundError, match=f"^{path}: no such checkpoint$"):
            checkpoint_of(Path(path))


def test_batches_hold_every_example_once_and_no_more_tokens_than_allowed():
    assert batches([9, 3, 4, 30, 3, 10], 20) == [[3], [5, 0], [2, 1, 4]]
    assert batches([5, 5, 5], 10) == [[0, 1], [2]]
    assert batches([], 10) == []
