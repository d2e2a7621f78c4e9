"""Where arrays of a long document are: room for them, and what is left of them."""

import errno
import gc

import pytest
import torch

from fairseq_poolingformer.attention.sharding import places
from fairseq_poolingformer.attention.sharding.places import Files, HostMemory, place_for


def test_files_have_no_name_and_end_with_their_tensors(tmp_path):
    files = Files(tmp_path)
    x = files.zeros((3, 1000), torch.bfloat16, torch.device("cpu"))
    assert not x.any()
    assert not x._is_view()
    x.fill_(2.0)
    files.trim()
    assert (x == 2.0).all()
    assert not list(tmp_path.iterdir())
    assert sum(map(len, files._maps)) == x.numel() * 2
    rows = x[1:]
    del x
    gc.collect()
    assert (rows == 2.0).all()
    del rows
    gc.collect()
    assert not list(files._maps)
    assert files.most == 6000


def test_an_empty_array_is_one(tmp_path):
    assert Files(tmp_path).zeros((0, 4), torch.float32, torch.device("cpu")).shape == (0, 4)


def test_too_little_room_is_said_before_anything_is_written(tmp_path, monkeypatch):
    files = Files(tmp_path)
    with pytest.raises(OSError, match=r"GiB are needed .* are free: set TMPDIR to a folder on a larger disk") as error:
        files.check(2**60)
    assert str(tmp_path) in str(error.value)

    def full(descriptor, start, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(places.os, "posix_fallocate", full)
    with pytest.raises(OSError, match="set TMPDIR"):
        files.zeros((4,), torch.float32, torch.device("cpu"))
    assert not list(tmp_path.iterdir())


def test_the_place_of_a_device(tmp_path, monkeypatch):
    monkeypatch.setattr(places.tempfile, "tempdir", str(tmp_path))
    files = place_for(torch.device("cpu"))
    assert isinstance(files, Files)
    assert files.folder == tmp_path
    host = place_for(torch.device("cuda"))
    assert isinstance(host, HostMemory)
    assert host.device == torch.device("cuda")
