import bz2
import contextlib
import gzip
import hashlib
import io
import json
import zipfile

import numpy as np
import pytest
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset

from fairseq_poolingformer.char_lm.task import load_text
from preprocess import char_lm
from preprocess.char_lm import main, make_folder

TEXT = bytes(np.random.default_rng(0).integers(0, 256, 1010, dtype=np.uint8))
# of what Mahoney's own program makes of the prefix of enwik8


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(TEXT)
    return path


def read(folder, split):
    """A split's bytes, read by fairseq's own classes."""
    names = Dictionary.load(str(folder / "dict.txt"))
    ids = np.concatenate([sequence.numpy() for sequence in MMapIndexedDataset(str(folder / split))])
    return bytes(int(names[index]) for index in ids)


def test_splits_are_the_text(file, tmp_path, monkeypatch):
    monkeypatch.setattr(char_lm, "_BLOCK_BYTES", 100)  # several sequences
    made = make_folder([str(file)], tmp_path / "data")
    assert made["bytes"] == {"train": 909, "valid": 50, "test": 51}
    splits = {split: read(tmp_path / "data", split) for split in ("train", "valid", "test")}
    assert b"".join(splits.values()) == TEXT
    assert {name: len(part) for name, part in splits.items()} == made["bytes"]
    assert {name: hashlib.sha256(part).hexdigest() for name, part in splits.items()} == made["sha256"]
    written = json.loads((tmp_path / "data" / "corpus.json").read_text())
    assert made.items() <= written.items()
    assert sorted(written["files"]) == sorted(
        ["dict.txt", *(f"{split}.{suffix}" for split in splits for suffix in ("bin", "idx"))]
    )
    assert not list((tmp_path / "data").glob("*unfinished"))


def test_every_kind_of_file_gives_the_same(file, tmp_path):
    (tmp_path / "text.gz").write_bytes(gzip.compress(TEXT))
    (tmp_path / "text.bz2").write_bytes(bz2.compress(TEXT))
    (tmp_path / "text.zip").write_bytes(archive(text=TEXT))
    (tmp_path / "a").write_bytes(TEXT[:400])
    (tmp_path / "b.gz").write_bytes(gzip.compress(TEXT[400:] + b"more"))
    plain = make_folder([str(file)], tmp_path / "plain")["sha256"]
    for number, names in enumerate((["text.gz"], ["text.bz2"], ["text.zip"], ["a", "b.gz"])):
        limit = len(TEXT) if names[-1] == "b.gz" else None
        inputs = [str(tmp_path / name) for name in names]
        assert make_folder(inputs, tmp_path / f"data{number}", limit=limit)["sha256"] == plain
    held_out = make_folder([str(file)], tmp_path / "held out", held_out=70)
    assert held_out["bytes"] == {"train": len(TEXT) - 140, "valid": 70, "test": 70}


def test_a_finished_folder_is_kept(file, tmp_path, capsys):
    command = ["--input", str(file), "--output-folder", str(tmp_path / "data")]
    assert main(command) == 0
    written = (tmp_path / "data" / "train.bin").stat().st_mtime_ns
    assert main(command) == 0
    assert (tmp_path / "data" / "train.bin").stat().st_mtime_ns == written
    assert main([*command, "--limit", "100"]) == 1
    assert "differs in: limit" in capsys.readouterr().err
    assert (tmp_path / "data" / "train.bin").stat().st_mtime_ns == written
    assert main([*command, "--limit", "100", "--overwrite"]) == 0
    assert read(tmp_path / "data", "train") == TEXT[:90]


def archive(**files):
    with zipfile.ZipFile(data := io.BytesIO(), "w") as written:
        for name, content in files.items():
            written.writestr(name, content)
    return data.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "arguments", "message"),
    [
        ("absent", None, [], "no such file"),
        (".", None, [], "is a folder; name its files"),
        ("text", TEXT, ["--splits", "1,2,3"], "1,2,3 is 6 bytes, but the text has 1,010"),
        ("text", TEXT, ["--limit", "5000"], "has only 1,010 bytes"),
        ("text", b"short", [], "too few for three splits"),
        ("text", TEXT, ["--held-out", "1010"], "too few for three splits"),
        ("text.gz", gzip.compress(TEXT)[:-20], [], "damaged gzip file"),
        ("text.zip", b"no archive", [], "damaged zip file"),
        ("text.zip", archive(a=b"a", b=b"b"), [], "2 files in it"),
        ("text", TEXT, ["--held-out", "0"], "argument --held-out: must be a whole number, 1 or more"),
    ],
)
def test_mistakes_are_explained_and_leave_nothing(name, content, arguments, message, tmp_path, capsys):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with contextlib.suppress(SystemExit):  # of the parser
        assert main(["--input", str(tmp_path / name), "--output-folder", str(tmp_path / "data"), *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not list((tmp_path / "data").glob("[!.]*"))


def test_a_killed_overwrite_is_noticed(file, tmp_path, monkeypatch):
    """With two texts in a folder, neither is read."""
    folder = tmp_path / "data"
    make_folder([str(file)], folder)
    assert len(load_text(folder, "test")) == 51

    def killed(prefix, *arguments):
        if prefix.name == "valid":
            raise KeyboardInterrupt
        return write_split(prefix, *arguments)

    write_split = char_lm._write_split
    monkeypatch.setattr(char_lm, "_write_split", killed)
    with pytest.raises(KeyboardInterrupt):
        make_folder([str(file)], folder, limit=500, overwrite=True)
    for split in ("train", "valid", "test"):
        with pytest.raises(FileNotFoundError, match=r"corpus\.json: not found; .*the folder is not finished"):
            load_text(folder, split)
