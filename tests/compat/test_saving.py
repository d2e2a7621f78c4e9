"""Checkpoints that are written, linked and replaced as a whole."""

import errno
import os
import resource
import signal
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_poolingformer import compat
from fairseq_poolingformer.compat import saving
from fairseq_poolingformer.compat.saving import damage, from_the_newest_good_one, replace_damaged

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


def test_a_damaged_one_is_replaced_without_hard_links(tmp_path, monkeypatch):
    def refused(*arguments):
        raise PermissionError

    save(tmp_path / "checkpoint1.pt", 1.0)
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(b"PK half")
    monkeypatch.setattr(os, "link", refused)
    replace_damaged(last)
    assert value(last) == 1.0
    assert (tmp_path / "checkpoint_last.pt.damaged").read_bytes() == b"PK half"


def test_there_is_a_last_checkpoint_even_if_replacing_it_fails(tmp_path, monkeypatch):
    save(tmp_path / "checkpoint1.pt", 1.0)
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(b"PK half")

    def full(path):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(saving, "_flush", full)
    with pytest.raises(OSError, match="could not be written"):
        replace_damaged(last)
    assert last.exists()


def test_an_average_is_not_resumed_from(tmp_path):
    os.utime(save(tmp_path / "checkpoint_1_50.pt", 1.0), (1, 1))
    os.utime(save(tmp_path / "checkpoint_average.pt", 9.0), (2, 2))
    last = tmp_path / "checkpoint_last.pt"
    last.touch()
    replace_damaged(last)
    assert value(last) == 1.0


@pytest.mark.parametrize("suffix", ["-shard0", "-model_part-0", ""])
def test_a_part_of_a_checkpoint_is_not_replaced_by_that_of_another_update(tmp_path, suffix):
    save(tmp_path / f"checkpoint1{suffix}.pt", 1.0)
    last = tmp_path / f"checkpoint_last{suffix}.pt"
    last.touch()
    cfg = SimpleNamespace(restore_file="checkpoint_last.pt", save_dir=str(tmp_path))
    from_the_newest_good_one(lambda *arguments: None)(
        cfg, SimpleNamespace(checkpoint_suffix=suffix, data_parallel_rank=0)
    )
    assert (last.stat().st_size == 0) == bool(suffix)


def test_no_flipped_bit_of_the_archive_escapes(tmp_path):
    """Each kind of error that zipfile has for a bit of its headers, zlib's and encryption's among them, is a damage."""
    path = save(tmp_path / "x.pt", 1.0)
    data = path.read_bytes()
    for position in range(data.index(b"PK\1\2"), len(data)):
        for bit in (1, 8, 32):
            path.write_bytes(data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :])
            assert damage(path) is None or isinstance(damage(path), str)


def test_a_file_system_that_flushes_no_folders(tmp_path, monkeypatch):
    flush = saving._flush

    def refused(path):
        if path.is_dir():
            raise OSError(errno.EINVAL, "Invalid argument")
        flush(path)

    monkeypatch.setattr(saving, "_flush", refused)
    assert value(save(tmp_path / "x.pt", 1.0)) == 1.0
