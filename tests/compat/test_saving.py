"""Checkpoints that are written, linked and replaced as a whole."""

import os
import resource
import signal

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_poolingformer import compat
from fairseq_poolingformer.compat.saving import damage, replace_damaged

compat.apply()


@pytest.fixture
def full_disk():
    """Files may grow to 64 KiB only."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


def save(path, value, size=1):
    checkpoint_utils.torch_persistent_save({"model": torch.full((size,), value)}, str(path))
    return path


def value(path):
    return torch.load(path)["model"][0].item()


def test_a_full_disk_leaves_the_former_checkpoint(tmp_path, full_disk):
    path = save(tmp_path / "checkpoint_last.pt", 1.0)
    with pytest.raises(OSError, match="could not be written"):
        save(path, 2.0, size=2**16)
    assert value(path) == 1.0
    assert os.listdir(tmp_path) == ["checkpoint_last.pt"]


def test_a_kill_while_writing_leaves_the_former_checkpoint(tmp_path, monkeypatch):
    path = save(tmp_path / "x.pt", 1.0)

    def killed(state, unfinished):
        unfinished.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        save(path, 2.0)
    monkeypatch.undo()
    assert value(path) == 1.0


def test_a_copy_is_a_further_name_of_the_same_file(tmp_path):
    first = save(tmp_path / "checkpoint1.pt", 1.0)
    last = save(tmp_path / "checkpoint_last.pt", 0.0)
    PathManager.copy(str(first), str(last), overwrite=True)
    assert last.samefile(first)
    save(first, 2.0)  # replaces one name
    assert (value(first), value(last)) == (2.0, 1.0)


def test_copies_without_hard_links(tmp_path, monkeypatch):
    def refused(*arguments):
        raise PermissionError

    monkeypatch.setattr(os, "link", refused)
    first = save(tmp_path / "checkpoint1.pt", 1.0)
    PathManager.copy(str(first), str(tmp_path / "checkpoint_last.pt"), overwrite=True)
    assert value(tmp_path / "checkpoint_last.pt") == 1.0
    assert not (tmp_path / "checkpoint_last.pt").samefile(first)


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("fault", ["empty", "cut", "text", "flipped"])
def test_a_damaged_last_checkpoint_is_replaced_by_the_newest_good_one(tmp_path, fault, caplog):
    for number in (1, 2, 3):
        os.utime(save(tmp_path / f"checkpoint{number}.pt", float(number), size=99), (number, number))
    (tmp_path / "checkpoint3.pt").write_bytes(b"PK damaged as well")
    last = save(tmp_path / "checkpoint_last.pt", 4.0, size=99)
    whole = last.read_bytes()
    if fault == "flipped":
        flip(last, whole.index(torch.full((9,), 4.0).numpy().tobytes()) + 5)
    else:
        last.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "text": b"not found"}[fault])
    assert damage(last)
    replace_damaged(last)
    assert value(last) == 2.0
    assert (tmp_path / "checkpoint_last.pt.damaged").exists()
    assert "RESUMING FROM checkpoint2.pt" in caplog.text


def test_nothing_happens_to_a_good_or_missing_one(tmp_path):
    replace_damaged(tmp_path / "checkpoint_last.pt")
    path = save(tmp_path / "checkpoint_last.pt", 1.0)
    replace_damaged(path)
    assert os.listdir(tmp_path) == ["checkpoint_last.pt"]


def test_without_any_good_one_the_file_is_named(tmp_path):
    path = tmp_path / "checkpoint_last.pt"
    path.touch()
    with pytest.raises(ValueError, match=r"last\.pt is damaged \(it is empty\), and its folder has no other"):
        replace_damaged(path)
    assert path.exists()
