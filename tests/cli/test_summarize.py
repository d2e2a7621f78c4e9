"""poolingformer summarize on a tiny checkpoint, in this process."""

import io
import sys

import pytest
import torch

from fairseq_poolingformer.cli import convert, summarize
from fairseq_poolingformer.models import PoolingformerBART
from fairseq_poolingformer.patches.processes import TORCHRUN_VARIABLES
from fairseq_poolingformer.weights.files import write_checkpoint
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
        options = ["--checkpoint", checkpoint, "--device", "cpu", "--max-len-b", 6]
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
    expected = [" ".join(text.split()) for text in hub.summarize(texts, max_len_b=6, beam=3, lenpen=1.0)]
    status, out, _ = run(*files, "--beam", 3, "--lenpen", 1)
    assert status == 0
    assert out == "".join(f"{file}\t{text}\n" for file, text in zip(files, expected, strict=True))
    assert run(files[0], "--beam", 3, "--lenpen", 1)[1] == f"{expected[0]}\n"
    assert run(*files, "--beam", 3, "--lenpen", 1, "--batch-size", 2)[1] == out


def test_documents_that_are_cut_are_named(run, files, caplog):
    run(*files)
    (message,) = {record.getMessage() for record in caplog.records if "the model reads" in record.getMessage()}
    assert message.startswith(f"{files[1]}: ")


def test_one_hypothesis_after_several(tmp_path):
    """fairseq's own decoder, of --arch bart_large, remembers the number of the search before."""
    source = tiny_huggingface.folder(tmp_path / "hf", "bart")
    assert convert.main(["to-fairseq", str(source), str(tmp_path / "fairseq")]) == 0
    hub = PoolingformerBART.from_pretrained(str(tmp_path / "fairseq")).eval()
    settings = {"max_len_b": 6, "batch_size": 2}
    first = hub.summarize([TEXT, TEXT * 2], beam=1, **settings)
    hub.summarize([TEXT, TEXT * 2], beam=3, **settings)
    assert hub.summarize([TEXT, TEXT * 2], beam=1, **settings) == first


def test_standard_input(run, files, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(TEXT.encode()))))
    assert run("-")[1] == run(files[0])[1]


def test_mistakes_are_one_sentence(run, tmp_path):
    (tmp_path / "blank.txt").write_text(" \n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.7\n\xe2\xe3")
    for name, message in (
        ("no.txt", "No such file"),
        ("blank.txt", "no text in it"),
        ("latin.txt", "not UTF-8 at byte 3; convert it, such as text of Windows with iconv -f CP1252"),
        ("paper.pdf", "is a PDF file; extract its text first, such as with pdftotext"),
    ):
        status, out, err = run(tmp_path / name)
        assert (status, out) == (1, "")
        assert message in err
        assert err.count("\n") == 1


def test_torchrun_is_refused(run, monkeypatch):
    """Each process would print all summaries."""
    for name in TORCHRUN_VARIABLES:
        monkeypatch.setenv(name, "0")
    with pytest.raises(SystemExit, match="2"):
        run("paper.txt")


OF_A_TASK = "{place}: a model of --task {task}, which writes no summaries; "


@pytest.mark.parametrize(
    ("arch", "task", "message"),
    [
        ("bart_large", "denoising", "poolingformer convert to-huggingface {path} FOLDER, and generate() there"),
        (
            "poolingformer_roberta_tiny",
            "document_classification",
            OF_A_TASK + "poolingformer predict DATA-FOLDER --output FILE --model {place} serves it",
        ),
        ("poolingformer_roberta_tiny", "long_masked_lm", OF_A_TASK + "fairseq-validate DATA-FOLDER --user-dir "),
    ],
)
def test_other_models_are_named_with_the_command_that_serves_them(tmp_path, files, capsys, arch, task, message):
    path = tmp_path / "judge" / "model.pt"
    path.parent.mkdir()
    write_checkpoint(path, {"arch": arch, "task": task}, {"x": torch.zeros(1)})
    for place in (path.parent, path):
        assert summarize.main(["--checkpoint", str(place), "--device", "cpu", str(files[0])]) == 1
        error = capsys.readouterr().err
        assert message.format(place=place, task=task, path=path) in error
        assert error.count("\n") == 1
