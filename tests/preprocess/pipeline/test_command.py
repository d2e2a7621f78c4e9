import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairseq_poolingformer.text.data_folder import check_folder
from preprocess import arxiv_pubmed
from preprocess.pipeline import data_folder, parts
from tests.lab import ROOT
from tests.preprocess.conftest import contents, refused, rejects

# As the command line, but in many parts and slowly.
SLOW = """
import sys, time
from preprocess import arxiv_pubmed
from preprocess.pipeline import parts
parts.PART_BYTES = 500
real = arxiv_pubmed.parse
def slow(record, **options):
    time.sleep(0.4)
    return real(record, **options)
arxiv_pubmed.parse = slow
sys.exit(arxiv_pubmed.main())
"""


def die(record, **options):
    """Parsing in a worker that runs out of memory."""
    os._exit(1)


def test_every_bad_line_is_named_and_the_good_ones_go_on(command, release, tmp_path, write_lines, capsys):
    good = (release / "train.txt").read_bytes().splitlines()
    large = json.dumps({"article_id": "large", "article": "long document " * 750_000, "abstract": "the document"})
    lines = [
        good[0],
        b'{"article": "x", ',
        {"article": "", "abstract": "x"},
        b"",
        {"article": "x", "abstract": []},
        b'{"article": "\xff", "abstract": "x"}',
        large.encode(),
        {"article": 1, "abstract": "x"},
        b'{"article": "' + b"x" * 12_000_000 + b'"}',
        {"article": "lone \ud800 half", "abstract": "carriage\rreturn \u2028 and\x85line \ud800"},
        good[1],
    ]
    train = write_lines("train.txt", lines)
    args = ["--train", train, "--valid", release / "val.txt", "--max-line-bytes", "11000000"]
    out = tmp_path / "out"
    assert command(out, *args) == 1
    errors = capsys.readouterr().err
    assert "--max-reject-fraction 0.01" in errors
    assert f"{train}, line 2: broken JSON" in errors
    assert not (out / "corpus.json").exists()
    bad = rejects(out)
    reasons = ["broken JSON", "empty article", "empty summary", "not UTF-8", "wrong type", "too long"]
    expected = dict(zip((2, 3, 5, 6, 8, 9), reasons, strict=True))
    assert {reject["line"]: reject["reason"].split(":")[0] for reject in bad} == expected
    assert {reject["file"] for reject in bad} == {str(train)}

    assert command(out, *args, "--max-reject-fraction", "0.7") == 0
    again = re.search(r"train: (\d+) of (\d+) parts were finished already", capsys.readouterr().err)
    reused, parts_of_train = map(int, again.groups())
    assert reused == parts_of_train > 1
    assert (out / "train.id.txt").read_text().splitlines() == ["toy.0001", "large", "train.txt:10", "toy.0002"]
    summaries = (out / "train.summary.txt").read_text(encoding="utf-8").split("\n")
    assert summaries[2:] == ["carriage return and line \ufffd", "pooling is cheap .", ""]


def test_a_killed_run_leaves_nothing_half_and_goes_on(command, release, tmp_path, monkeypatch, gpt2_folder, capfd):
    monkeypatch.setattr(parts, "PART_BYTES", 500)
    assert command(tmp_path / "whole", "--input-folder", release) == 0
    out = tmp_path / "killed"
    process = start_slow(out, release, gpt2_folder)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "corpus.json").exists()
    assert not list(out.glob("*.bin"))
    capfd.readouterr()
    assert command(out, "--input-folder", release) == 0
    log = capfd.readouterr().err
    assert "continuing where an earlier run stopped" in log
    assert "parts were finished already" in log
    assert contents(out) == contents(tmp_path / "whole")


def test_a_second_preprocessing_is_refused_while_the_first_runs(command, release, tmp_path, gpt2_folder, capfd):
    out = tmp_path / "out"
    first = start_slow(out, release, gpt2_folder)
    for other in (["--id-key", "article_id", "--overwrite"], []):  # another corpus, and the same
        assert command(out, "--input-folder", release, *other) == 1
        assert "another preprocessing is running in this folder. Wait for it or" in capfd.readouterr().err
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert command(out, "--input-folder", release) == 0  # the lock is gone, and may be taken again
    assert command(out, "--input-folder", release, "--id-key", "article_id", "--overwrite") == 0
    assert check_folder(out) == (24, [])


def fill_disk(path, data):
    """Write an array of a part, whose error has no name of its own."""
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("owner", "name", "fault", "message"),
    [
        (Path, "write_bytes", fill_disk, "arxiv_pubmed: {}: No space left on device"),
        (arxiv_pubmed, "parse", die, "a worker process died"),
    ],
)
def test_faults_of_the_machine_are_named(release, tmp_path, monkeypatch, capsys, owner, name, fault, message):
    monkeypatch.setattr(owner, name, fault)
    errors = refused(capsys, arxiv_pubmed, tmp_path, "--input-folder", release, "--workers", "2")
    assert message.format(tmp_path) in errors


def start_slow(out, release, gpt2_folder):
    """A process that has finished its first part."""
    argv = ["--gpt2-bpe", gpt2_folder, "--output-folder", out, "--input-folder", release, "--workers", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", SLOW, *map(str, argv)], env=environment, cwd=ROOT)
    end = time.monotonic() + 60
    while not (out / ".parts" / "train-000000-000000.json").exists():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return process


def test_work_of_other_settings_is_not_used(command, release, tmp_path, write_lines, capsys):
    train = write_lines("train.txt", [b"bad", (release / "train.txt").read_bytes().splitlines()[0]])
    out = tmp_path / "out"
    assert command(out, "--train", train) == 1
    assert command(out, "--train", train, "--id-key", "article_id", "--max-reject-fraction", "0.5") == 0
    log = capsys.readouterr().err
    assert "deleting unfinished work of other settings or input" in log
    assert "parts were finished already" not in log


def test_a_finished_folder_is_kept_unless_told_otherwise(command, release, tmp_path, monkeypatch, capsys):
    assert command(tmp_path, "--input-folder", release) == 0
    before, table = contents(tmp_path), capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(data_folder, "lock_folder", None)  # it may be read-only
        assert command(tmp_path, "--input-folder", release, "--max-source-length", "10") == 0
    assert "up to date" in (output := capsys.readouterr()).err
    assert "input > 10" in output.out
    assert [line.split()[-1] for line in output.out.splitlines()] == [line.split()[-1] for line in table.splitlines()]
    assert output.out.splitlines()[1].split()[:3] == table.splitlines()[1].split()[:3]
    other = ["--train", release / "val.txt", "--valid", release / "test.txt"]
    assert "differs in: inputs" in refused(capsys, arxiv_pubmed, tmp_path, *other)
    assert contents(tmp_path) == before
    (tmp_path / "train.text.txt").write_text("a text that the former corpus had, and the new one has not")
    assert command(tmp_path, *other, "--overwrite") == 0
    assert not (tmp_path / "train.text.txt").exists()
    assert (tmp_path / "train.id.txt").read_text().split() == ["toy.0101", "toy.0102"]
    assert not list(tmp_path.glob("test.*"))
    assert (tmp_path / "train.rejects.jsonl").is_file()


ALL = ["--input-folder", "RELEASE"]
NUMBERS = {
    ("--max-reject-fraction", "nan"): "a number from 0 to 1",
    ("--max-line-bytes", "-1"): "a whole number, 1 or more",
    ("--workers", "0"): "a whole number, 1 or more",
    ("--valid-share", "nan"): "a finite number",
}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--train", "nowhere.txt"], "nowhere.txt: no such file"),
        (["--input-folder", "EMPTY"], "no name in it says train, valid or test; name its files with --train"),
        ([*ALL, "--train", "RELEASE/train.txt"], "exclude each other"),
        (["--train", "EMPTY/empty.txt"], "train: no good example. Its files hold none"),
        (["--train", "EMPTY/cut.txt.gz"], "damaged gzip file"),
        *(
            ([*ALL, *words], f"argument {words[0]}: must be {bound}, got {words[1]!r}")
            for words, bound in NUMBERS.items()
        ),
        ([*ALL, "--gpt2-bpe", "EMPTY"], "lacks encoder.json"),
        ([*ALL, "--sentencepiece-model", "EMPTY/no.model"], "no.model: no such file"),
        ([*ALL, "--sentencepiece-model", "RELEASE/val.txt"], "not a sentencepiece model"),
        ([*ALL, "--sentencepiece-train", "50"], "Try another size"),
    ],
)
def test_wrong_arguments_are_explained(release, tmp_path, capsys, args, message):
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "empty.txt").write_text("\n")
    (empty / "cut.txt.gz").write_bytes(b"\x1f\x8b\x08\x00" + b"\0" * 30)
    args = [arg.replace("RELEASE", str(release)).replace("EMPTY", str(empty)) for arg in args]
    tokenizer = [] if {"--gpt2-bpe", "--sentencepiece-model", "--sentencepiece-train"} & set(args) else None
    assert message in refused(capsys, arxiv_pubmed, tmp_path / "out", *args, tokenizer=tokenizer)
    assert not (tmp_path / "out" / "corpus.json").exists()


def test_foreign_keys_are_named_where_a_tokenizer_is_trained(command, tmp_path, write_lines, capsys):
    train = write_lines("train.jsonl", [{"body": "text " * 9, "tldr": "short"}])
    args = ["--train", train, "--valid", train]
    trained = ["--sentencepiece-train", "300"]
    assert command(tmp_path / "out", *args, tokenizer=trained) == 1
    errors = capsys.readouterr().err
    assert f"{train}, line 1: no article: the line lacks article_text and" in errors
    assert "its keys are body, tldr (name one with --article-key)" in errors
    assert "sentencepiece cannot" not in errors
    keys = ["--article-key", "text", "body", "--summary-key", "tldr"]
    assert command(tmp_path / "out", *args, *keys) == 0
    assert (tmp_path / "out" / "valid.summary.txt").read_text() == "short\n"
