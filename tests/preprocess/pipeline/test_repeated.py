"""Documents that several splits have."""

import json

import pytest

from preprocess import plain_text
from preprocess.pipeline import parts, repeated


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 1)


def lines_of(documents):
    return [{"id": name, "article": text, "abstract": f"summary {name}"} for name, text in documents.items()]


TRAIN = {f"t{number}": f"document number {number}" for number in range(10)}


def test_the_same_file_twice_is_said_before_and_after(command, tmp_path, write_lines, capsys, small_parts):
    train = write_lines("train.jsonl", lines_of(TRAIN))
    copy = write_lines("copy.jsonl", lines_of(TRAIN))
    assert command(tmp_path / "out", "--train", train, "--valid", copy) == 0
    output = capsys.readouterr()
    line = "valid: 10 of 10 documents are in train, too, such as t0 (train: t0), t1 (train: t1), t2 (train: t2)"
    assert line in output.out.splitlines()
    assert f"WARNING: {line}" in output.err
    assert "WARNING: train and valid are made of the same file: copy.jsonl" in output.err
    assert json.loads((tmp_path / "out" / "corpus.json").read_text())["shared"] == [line]
    assert command(tmp_path / "out", "--train", train, "--valid", copy) == 0  # up to date
    assert line in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_documents_are_compared_as_they_are_used(workers, command, tmp_path, write_lines, capsys, small_parts):
    """Another summary is the same document; a document that a limit or a choice leaves out is not in a split."""
    train = write_lines("train.jsonl", lines_of(TRAIN))
    valid = write_lines("valid.jsonl", lines_of({"v0": "other", "v1": TRAIN["t7"], "v2": TRAIN["t3"] + " "}))
    test = write_lines("test.jsonl", lines_of({"e0": "other", "e1": TRAIN["t9"]}))
    files = ["--train", train, "--valid", valid, "--test", test, "--workers", workers]
    assert command(tmp_path / "all", *files) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "valid: 2 of 3 documents are in train, too, such as v1 (train: t7), v2 (train: t3)",
        "test: 1 of 2 documents are in train, too, such as e1 (train: t9)",
        "test: 1 of 2 documents are in valid, too, such as e0 (valid: v0)",
    ]
    assert command(tmp_path / "few", *files, "--limit", "5", "--limit-valid", "1", "--limit-seed", "1") == 0
    names = (tmp_path / "few" / "valid.id.txt").read_text().split()
    expected = {"v0": "such as e0", "v1": "", "v2": "such as v2 (train: t3)"}[names[0]]
    shared = [line for line in capsys.readouterr().out.splitlines() if "too, such as" in line]
    assert len(shared) == bool(expected)
    assert all(expected in line for line in shared)


def test_nothing_is_said_of_different_documents(command, release, tmp_path, capsys):
    assert command(tmp_path / "out", "--input-folder", release) == 0
    output = capsys.readouterr()
    assert "too, such as" not in output.out + output.err
    assert "same file" not in output.err


def test_language_models(gpt2_folder, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n\nthree\n")
    (tmp_path / "b.txt").write_text("four\n\n\ntwo")
    options = ["--input", "a.txt", "--valid", "b.txt", "--documents", "block", "--output-folder", "out"]
    argv = [str(tmp_path / option) if "." in option or option == "out" else option for option in options]
    assert plain_text.main([*argv, "--gpt2-bpe", str(gpt2_folder), "--workers", "1"]) == 0
    line = "valid: 1 of 2 documents are in train, too, such as b.txt:4 (train: a.txt:3)"
    assert line in capsys.readouterr().out.splitlines()


def test_inputs_of_any_shape():
    for inputs in (None, [], {"evidence": {"files": 1}}, {"train": [3], "valid": [{"x": 1}]}):
        assert repeated.shared_files(inputs) == []
