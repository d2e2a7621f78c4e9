"""Checkpoint files: the allow-list, and one sentence for each way in which a file cannot be read."""

import argparse
import pickle
import random
from pathlib import Path

import numpy
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.distributed.utils import _TensorPlaceholder
from fairseq.logging import meters
from omegaconf import OmegaConf

from fairseq_poolingformer import compat
from fairseq_poolingformer.compat import CheckpointError, checkpoint_files
from fairseq_poolingformer.compat.checkpoint_files import load, read

compat.apply()


@pytest.fixture
def empty_list():
    """torch's own list alone, as it is without the patch."""
    kept = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    yield
    torch.serialization.add_safe_globals(kept)


class OffTheList:
    """Something a checkpoint has no business holding."""


class AlsoOffTheList(OffTheList):
    """Another."""


ALLOWED = {
    "Namespace": argparse.Namespace(arch="bart_large", lr=[0.1]),
    "Dictionary": Dictionary(),
    "numpy float": numpy.float64(27.5),
    "numpy int": numpy.int64(3),
    "numpy bool": numpy.bool_(True),
    "numpy array": numpy.arange(3.0),
    "numpy int array": numpy.arange(3),
    "numpy text": numpy.array(["a", "bc"]),
    "DictConfig": OmegaConf.create({"a": {"b": [1, 2.5, "c", None, True]}}),
    "tensor sent to other ranks": _TensorPlaceholder(3),
    "meter": meters.AverageMeter(),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_checkpoints_hold_loads(tmp_path, name):
    torch.save({"held": ALLOWED[name]}, tmp_path / "x.pt")
    held = read(tmp_path / "x.pt")["held"]
    assert isinstance(held, type(ALLOWED[name]))


@pytest.mark.parametrize("name", ALLOWED)
def test_none_of_it_loads_without_the_list(tmp_path, name, empty_list):
    torch.save({"held": ALLOWED[name]}, tmp_path / "x.pt")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "x.pt")


@pytest.mark.parametrize(
    ("held", "now", "then"),
    [
        (numpy.float64(27.5), b"numpy._core.multiarray", b"numpy.core.multiarray"),
        (numpy.arange(3.0), b"numpy._core.multiarray", b"numpy.core.multiarray"),
        (meters.TimeMeter(), b"fairseq.logging.meters", b"fairseq.meters"),
    ],
)
def test_former_module_names_load(tmp_path, held, now, then):
    torch.save({"held": held}, tmp_path / "now.pt", _use_new_zipfile_serialization=False)
    content = (tmp_path / "now.pt").read_bytes().replace(now, then)
    assert then in content
    (tmp_path / "then.pt").write_bytes(content)
    assert isinstance(read(tmp_path / "then.pt")["held"], type(held))


@pytest.mark.parametrize("zipped", [True, False])
def test_refusal_names_file_class_and_remedy(tmp_path, zipped):
    path = tmp_path / "x.pt"
    torch.save({"a": OffTheList()}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError) as caught:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    message = str(caught.value)
    assert str(path) in message
    assert "test_checkpoint_files.OffTheList" in message
    assert "add_safe_globals" in message
    assert "weights_only" not in message  # torch's own message proposes to turn it off


def test_refusal_names_all_classes_at_once(tmp_path):
    torch.save({"a": OffTheList(), "b": AlsoOffTheList()}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=r"AlsoOffTheList, .*\.OffTheList"):
        load(tmp_path / "x.pt")


def test_code_in_a_checkpoint_is_refused(tmp_path):
    class Runs:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"a": Runs()}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "x.pt"))
    assert not (tmp_path / "ran").exists()


def test_a_model_with_add_args_needs_the_list(tmp_path, monkeypatch, empty_list):
    """fairseq keeps the options of a model with ``add_args`` as a Namespace."""
    monkeypatch.setattr(checkpoint_files, "data_globals", list)
    torch.save({"model": {}, "args": argparse.Namespace()}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=r"argparse\.Namespace"):
        load(tmp_path / "x.pt")


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
    assert "weights_only" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_torchs_own_sentence_is_quoted(tmp_path):
    (tmp_path / "x.pt").write_bytes(b"\x80\x02\xfe.")
    with pytest.raises(CheckpointError, match=r"torch says: Unsupported operand 254\)"):
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


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
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
