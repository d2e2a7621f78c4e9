"""poolingformer-summarize on a tiny checkpoint, in this process."""

import io
import sys

import pytest

from fairseq_poolingformer.cli import convert, summarize
from fairseq_poolingformer.models import PoolingformerBART
from tests.models import tiny_huggingface

TEXT = "the thing in there is that thing"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("led")
    source = tiny_huggingface.folder(path / "hf", "led")
    assert convert.main(["to-fairseq", str(source), str(path / "fairseq")]) == 0
    return path / "fairseq" / "model.pt"


@pytest.fixture
def run(checkpoint, capsys):
    def call(*arguments):
        options = ["--checkpoint", checkpoint, "--device", "cpu", "--max-length", 6]
        status = summarize.main([str(argument) for argument in (*options, *arguments)])
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def files(tmp_path):
    (tmp_path / "short.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "long.txt").write_text("the thing " * 100, encoding="utf-8")
    return tmp_path / "short.txt", tmp_path / "long.txt"


def test_summaries_are_those_of_the_hub_with_the_names_of_the_files(run, checkpoint, files, caplog):
    hub = PoolingformerBART.from_pretrained(str(checkpoint.parent)).eval()
    texts = [file.read_text(encoding="utf-8") for file in files]
    expected = [" ".join(text.split()) for text in hub.summarize(texts, max_length=6, beam=3, lenpen=1.0)]
    status, out, _ = run(*files, "--beam", 3, "--lenpen", 1)
    assert status == 0
    assert out == "".join(f"{file}\t{text}\n" for file, text in zip(files, expected, strict=True))
    assert run(files[0], "--beam", 3, "--lenpen", 1)[1] == f"{expected[0]}\n"
    assert run(*files, "--beam", 3, "--lenpen", 1, "--batch-size", 2)[1] == out


def test_documents_that_are_cut_are_named(run, files, caplog):
    run(*files)
    (message,) = {record.getMessage() for record in caplog.records if "the model reads" in record.getMessage()}
    assert message.startswith(f"{files[1]}: ")


def test_standard_input(run, files, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert run("-")[1] == run(files[0])[1]


def test_mistakes_are_one_sentence(run, tmp_path):
    (tmp_path / "blank.txt").write_text(" \n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    for name, message in (
        ("no.txt", "No such file"),
        ("blank.txt", "no text in it"),
        ("latin.txt", "not UTF-8 at byte 3"),
    ):
        status, out, err = run(tmp_path / name)
        assert (status, out) == (1, "")
        assert message in err
        assert err.count("\n") == 1


def test_a_checkpoint_that_is_not_there_or_has_no_tokenizer(run, files, checkpoint, tmp_path):
    status, _, err = run(files[0], "--checkpoint", tmp_path / "no.pt")
    assert (status, "no.pt: no such checkpoint" in err) == (1, True)
    status, _, err = run(files[0], "--data-folder", tmp_path)
    assert (status, "--data-folder" in err) == (1, True)
