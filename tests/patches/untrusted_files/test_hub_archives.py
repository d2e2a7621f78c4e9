"""Archives of models: those with entries outside their folder are refused, and nothing is written there."""

import io
import os
import tarfile
from pathlib import Path

import pytest
import torch
from fairseq import file_utils, hub_utils

from fairseq_poolingformer.patches import CheckpointError, table
from fairseq_poolingformer.patches.untrusted_files.hub_archives import model_folder
from tests.checkpoint_reader.watched import assert_harmless, watched
from tests.patches import tar_fuzz

table.apply()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(file_utils, "PYTORCH_FAIRSEQ_CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def entry(name, content=b"x", **attributes):
    header = tarfile.TarInfo(name)
    header.size = len(content)
    for attribute, value in attributes.items():
        setattr(header, attribute, value)
    return header, content


def write(path, *entries, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for header, content in entries:
            archive.addfile(header, io.BytesIO(content))
    return str(path)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("top", ["", "model/", "./", "a/b/"])
def test_an_archive_is_unpacked_into_the_cache_and_kept(tmp_path, cache, mode, top):
    path = write(tmp_path / "m.tar", entry(f"{top}model.pt", b"weights"), entry(f"{top}data/dict.txt"), mode=mode)
    folder = Path(model_folder(path))
    assert folder.is_relative_to(cache)
    assert (folder / "model.pt").read_bytes() == b"weights"
    assert (folder / "data" / "dict.txt").read_bytes() == b"x"
    assert os.path.isfile(path)
    assert model_folder(path) == str(folder)
    assert len(os.listdir(cache)) == 1


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([entry("../escaped")], "leaves the archive's folder"),
        ([entry("a/../../escaped")], "leaves the archive's folder"),
        ([entry("/{tmp}/escaped")], "leaves the archive's folder"),
        ([entry("a", b"", type=tarfile.SYMTYPE, linkname=".."), entry("a/escaped")], "is a link"),
        ([entry("escaped", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")], "is a link"),
        ([entry("escaped", b"", type=tarfile.LNKTYPE, linkname="../secret")], "is a link"),
        ([entry("escaped", b"", type=tarfile.FIFOTYPE)], "something else than a file"),
        ([entry("escaped", b"", type=tarfile.CHRTYPE)], "something else than a file"),
        ([entry("zeros", bytes(2**25))], r"its \d+,\d+ bytes would become 33,554,433"),
        ([entry("a/" * 30 + "escaped")], "more than 20 folders deep"),
        ([entry("escaped", pax_headers={"size": "-512"})], "something else than a file|cannot be unpacked"),
    ],
)
def test_hostile_archives_write_nothing(tmp_path, cache, entries, message):
    (tmp_path / "secret").write_text("secret")
    for header, _ in entries:
        header.name = header.name.replace("{tmp}", str(tmp_path).lstrip("/"))
    path = write(tmp_path / "m.tar.gz", entry("first"), *entries)
    with pytest.raises(CheckpointError, match=message):
        hub_utils.from_pretrained(path)
    assert not list(tmp_path.rglob("escaped"))
    assert os.listdir(cache) == []


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_other_files_are_one_sentence(tmp_path, content):
    path = Path(write(tmp_path / "m.tar.gz", entry("model.pt", os.urandom(5000))))
    path.write_bytes(path.read_bytes()[:2000] if content is None else content)
    with pytest.raises(CheckpointError, match=r"m\.tar\.gz cannot be unpacked"):
        model_folder(path)


@pytest.mark.parametrize("kind", ["name", "fields"])
def test_headers_that_grow_are_bounded(tmp_path, kind):
    """A file name, or fields, of gigabytes."""
    (tmp_path / "m.tar.gz").write_bytes(tar_fuzz.bomb(kind))
    (outcome,) = watched(model_folder, [tmp_path / "m.tar.gz"], seconds=60, memory=2**28, own=str(tmp_path))
    assert outcome.error == "CheckpointError"
    assert "bytes would become" in outcome.value


def test_random_archives(tmp_path, request):
    def make(seed):
        path = tmp_path / f"{seed}.tar.gz"
        path.write_bytes(tar_fuzz.archive(seed))
        return path

    count = 10_000 if request.config.getoption("--thorough") else 300
    (tmp_path.parent / "escaped").unlink(missing_ok=True)
    outcomes = watched(model_folder, range(count), seconds=20, memory=2**30, make=make, own=str(tmp_path / "cache"))
    assert_harmless(outcomes, ("CheckpointError",))
    assert sum(outcome.error is None for outcome in outcomes) > count / 20
    assert not [
        path for path in (tmp_path / "escaped", tmp_path.parent / "escaped", Path("/tmp/escaped")) if path.exists()
    ]


def test_a_folder_is_itself_and_a_missing_one_is_named(tmp_path):
    assert model_folder(tmp_path) == str(tmp_path)
    with pytest.raises(FileNotFoundError, match="missing: no such folder"):
        model_folder(tmp_path / "missing")


def test_a_checkpoint_in_an_archive_is_read_as_any_other(tmp_path):
    content = io.BytesIO()
    torch.save({"model": {}, "args": None, "x": Path("x")}, content)
    path = write(tmp_path / "m.tar.gz", entry("model.pt", content.getvalue()))
    with pytest.raises(CheckpointError, match=r"refers to pathlib"):
        hub_utils.from_pretrained(path)
