"""Checkpoint files: one sentence for each way in which one cannot be read."""

import argparse
import random
from pathlib import Path

import numpy
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from omegaconf import OmegaConf

from fairseq_poolingformer.checkpoint_reader.checkpoints import load, read
from fairseq_poolingformer.patches import CheckpointError, table

table.apply()


class NoData:
    """Something a checkpoint has no business holding."""


class AlsoNoData(NoData):
    """Another."""


@pytest.mark.parametrize("zipped", [True, False])
def test_refusal_names_file_class_and_remedy(tmp_path, zipped):
    path = tmp_path / "x.pt"
    torch.save({"a": NoData()}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError) as caught:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    message = str(caught.value)
    assert str(path) in message
    assert "test_checkpoints.NoData" in message
    assert "save it there with nothing else" in message


def test_refusal_names_all_classes_at_once(tmp_path):
    torch.save({"a": NoData(), "b": AlsoNoData()}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=r"AlsoNoData, .*\.NoData"):
        load(tmp_path / "x.pt")


def test_code_in_a_checkpoint_is_refused(tmp_path):
    class Runs:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"a": Runs()}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "x.pt"))
    assert not (tmp_path / "ran").exists()


def test_a_dictionary_of_fairseq_is_refused(tmp_path):
    """fairseq's tasks for speech put it into their state; for text it lies in the data folder."""
    torch.save({"model": {}, "task_state": {"dictionary": Dictionary()}}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=r"refers to fairseq\.data\.dictionary\.Dictionary, and"):
        load(tmp_path / "x.pt")


@pytest.mark.parametrize("make", [OmegaConf.create, dict])
def test_fairseq_makes_its_configuration_of_either_form(tmp_path, make):
    """Early hydra checkpoints hold it as omegaconf's, later ones as dictionaries with a Namespace in them."""
    configuration = {"model": {"_name": "transformer", "dropout": 0.5}, "task": {"_name": "translation"}}
    if make is dict:
        configuration["model"] = argparse.Namespace(**configuration["model"])
    history = [{"optimizer_name": "x", "lr_scheduler_state": {}, "num_updates": numpy.int64(3).item()}]
    extra_state = {"train_iterator": {"epoch": 1}, "best": numpy.float64(2.5)}
    state = {"model": {}, "args": None, "cfg": make(configuration), "extra_state": extra_state}
    torch.save({**state, "optimizer_history": history}, tmp_path / "x.pt")
    loaded = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "x.pt"), {"dropout": 0.25})
    assert loaded["cfg"].model._name == "transformer"
    assert loaded["cfg"].task._name == "translation"
    assert loaded["extra_state"]["best"] == 2.5
    assert loaded["cfg"].model.dropout == 0.25


def checkpoint(path: Path, zipped: bool = True) -> Path:
    torch.manual_seed(0)
    state = {"args": argparse.Namespace(arch="x"), "cfg": None, "model": {"w": torch.randn(40, 30)}, "n": [1, "a"]}
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    return path


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: writing or copying it was broken off"),
        (b"a text\n" * 40, "is not a checkpoint. It begins with b'a text"),
        (b"\0" * 3000, "is not a checkpoint. It begins with"),
        (b"<!doctype html><html>", "A web page was saved in its place"),
        (LFS, "git lfs pull"),
        (0.5, "is damaged or cut short"),
        (0.05, "is damaged or cut short"),
        (-0.5, "is damaged or cut short"),
    ],
)
@pytest.mark.parametrize("reader", [load, checkpoint_utils.load_checkpoint_to_cpu])
def test_files_that_are_no_checkpoint(tmp_path, content, message, reader):
    """A number is the share that is left of a checkpoint; a negative one, of one as torch saved them before 1.6."""
    path = checkpoint(tmp_path / "x.pt", zipped=not isinstance(content, float) or content > 0)
    if isinstance(content, float):
        whole = path.read_bytes()
        content = whole[: int(len(whole) * abs(content))]
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        reader(str(path))
    assert str(caught.value).startswith(f"{path} ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_wrong_is_said(tmp_path):
    (tmp_path / "x.pt").write_bytes(b"\x80\x02\xfe.")
    with pytest.raises(CheckpointError, match=r"x\.pt is damaged or cut short: unknown instruction b'.xfe'\. "):
        read(tmp_path / "x.pt")


@pytest.mark.parametrize("held", [[1, 2], {"weight": torch.ones(2)}, torch.ones(3)])
@pytest.mark.parametrize("reader", [load, checkpoint_utils.load_checkpoint_to_cpu])
def test_other_files_of_torch(tmp_path, held, reader):
    torch.save(held, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=r"x\.pt is not a checkpoint of fairseq: .*poolingformer-convert"):
        reader(str(tmp_path / "x.pt"))


def test_safetensors_are_told_to_be_converted(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    with pytest.raises(CheckpointError, match="poolingformer-convert to-fairseq"):
        read(tmp_path / "model.safetensors")


def same(first, second):
    """Whether two states are equal in every entry."""
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    return first == second


@pytest.mark.parametrize("zipped", [True, False])
def test_flipped_bits_and_cuts_are_named_or_harmless(tmp_path, zipped):
    """Each is refused, or leaves all as it was. Files from before torch 1.6 have no checksums: theirs only end well."""
    path = checkpoint(tmp_path / "x.pt", zipped)
    whole = path.read_bytes()
    expected, chance, refused = read(path), random.Random(1), 0
    for number in range(250):
        content = bytearray(whole)
        if number < 200:
            content[chance.randrange(len(content) if zipped else 600)] ^= 1 << chance.randrange(8)
        else:
            content = content[: chance.randrange(len(content))]
        path.write_bytes(content)
        try:
            state = load(path)
        except CheckpointError as error:
            refused += str(error).startswith(f"{path} ")
        else:
            assert not zipped or same(state, expected)
            assert number < 200 or not zipped
    assert refused > (200 if zipped else 70)
