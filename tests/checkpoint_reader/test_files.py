"""The containers of checkpoints: archives of other programs, of other machines, and without checksums."""

import gc
import io
import sys
import weakref
import zipfile

import numpy as np
import pytest
import torch

from fairseq_poolingformer.checkpoint_reader.errors import Malformed
from fairseq_poolingformer.checkpoint_reader.files import damage, read
from tests.checkpoint_reader.test_builders import BASE, saved


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_archive_that_was_packed_again(compression):
    """By another program, with another order and perhaps compressed."""
    source = zipfile.ZipFile(saved({"w": BASE, "b": torch.randn(500_000)}))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name in source.namelist()[::-1]:
            archive.writestr(name, source.read(name))
    assert torch.equal(read(file)["w"], BASE)


def test_the_other_byte_order():
    source = zipfile.ZipFile(saved({"w": BASE, "n": torch.arange(3)}))
    file = io.BytesIO()
    other = {"little": "big", "big": "little"}[sys.byteorder]
    with zipfile.ZipFile(file, "w") as archive:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("byteorder"):
                content = other.encode()
            elif name.endswith("data/0"):
                content = np.frombuffer(content, "<f4").byteswap().tobytes()
            elif name.endswith("data/1"):
                content = np.frombuffer(content, "<i8").byteswap().tobytes()
            archive.writestr(name, content)
    found = read(file)
    assert torch.equal(found["w"], BASE)
    assert found["n"].tolist() == [0, 1, 2]


def test_an_archive_without_checksums_is_read_with_a_warning(caplog):
    torch.serialization.set_crc32_options(False)
    try:
        file = saved({"w": BASE})
    finally:
        torch.serialization.set_crc32_options(True)
    assert torch.equal(read(file)["w"], BASE)
    assert "without checksums" in caplog.text


@pytest.mark.parametrize("zipped", [True, False])
def test_the_bytes_of_unread_entries_are_not_read(zipped):
    """Their damage goes unnoticed; tensors that other entries have, too, are read."""
    value = {"model": {"w": BASE, "b": torch.ones(5)}, "optimizer": {"m": torch.full((500,), 7.0), "w": BASE}}
    content = bytearray(saved({**value, "none": None, "text": "x"}, zipped).getvalue())
    content[content.index(b"\0\0\xe0\x40" * 500) + 1] ^= 1
    found = read(io.BytesIO(content), ("optimizer", "none", "text", "absent"))
    assert found.keys() == {"model", "optimizer", "none", "text"}
    assert (found["optimizer"], found["none"], found["text"]) == ({}, None, "x")
    assert torch.equal(found["model"]["w"], BASE)
    assert found["model"]["b"].tolist() == [1] * 5
    if zipped:
        with pytest.raises(Malformed, match="checksum"):
            read(io.BytesIO(content))


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_holds_what_was_read(zipped):
    """A model's memory is free as soon as its last user has gone, without a search for circles of references."""
    gc.collect()
    gc.disable()
    try:
        found = read(saved({"w": BASE, "n": torch.arange(3)}, zipped))
        tensor = weakref.ref(found["w"])
        del found
        assert tensor() is None
    finally:
        gc.enable()


def test_damage_is_said_of_a_file_that_is_none(tmp_path):
    path = tmp_path / "x.pt"
    assert "No such file" in damage(path)
    for content, fault in ((b"", "it is empty"), (b"text", "it is not a file of torch"), (b"PK\3\4", "its directory")):
        path.write_bytes(content)
        assert fault in damage(path)
    torch.save({"w": BASE}, path)
    assert damage(path) is None
    content = bytearray(path.read_bytes())
    content[content.index(BASE.numpy().tobytes())] ^= 1
    path.write_bytes(content)
    assert "the checksum of" in damage(path)
