"""The command rfc: what is used, the splits, versions of one document, and mistakes."""

import gzip
import json

import pytest

from fairseq_poolingformer.tasks.summarization import PAIRS
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import plain_text, rfc
from tests.preprocess.made_rfc import ABSTRACT, LONG, make_rfc, write_rfcs


def body(number: int) -> dict[str, str]:
    return {"1.  Introduction": f"This is the memo {number}. {LONG}", "2.  More": "There is more to say."}


def good(number: int, **options) -> str:
    return make_rfc(number, body(number), **options)


@pytest.fixture
def convert(tmp_path, gpt2_folder):
    def run(*arguments):
        words = ("--gpt2-bpe", gpt2_folder, "--output-folder", tmp_path / "data", "--workers", 1, *arguments)
        return rfc.main([str(word) for word in words])

    return run


def test_splits_are_by_number_and_versions_of_held_out_documents_are_left_out(tmp_path, convert, gpt2_folder):
    documents = {number: good(number) for number in (1, 3, 10, 20, 41)}
    documents |= {2: good(2), 40: good(40, obsoletes="2"), 55: good(55, obsoletes="RFC 40")}  # of one document
    documents |= {7: good(7, obsoletes="3")}
    folder = write_rfcs(tmp_path / "RFC", documents)
    (folder / "rfc-index.txt").write_text("no document")
    (folder / "zoo").mkdir()
    (folder / "zoo" / "rfc30.txt.gz").write_bytes(gzip.compress(good(30).encode()))
    (folder / "zoo" / "rfc1.txt").write_text("the same document again")
    assert convert("--input", folder, "--write-text") == 0
    data = tmp_path / "data"
    ids = {split: (data / f"{split}.id.txt").read_text().split() for split in ("train", "valid", "test")}
    assert ids == {"train": ["rfc1", "rfc3", "rfc7", "rfc41"], "valid": ["rfc10", "rfc30"], "test": ["rfc20", "rfc40"]}
    corpus = json.loads((data / "corpus.json").read_text())
    assert corpus["skipped"]["train"] == {rfc.KIN: 2}
    tokenizer = load_tokenizer(data)
    document, summary = (tokenizer.decode(Sequences(data / f"test.{array}")[0]) for array in PAIRS.ids)
    assert summary == ABSTRACT.strip()
    assert document == f"1. Introduction\nThis is the memo 20. {LONG.strip()}\n2. More\nThere is more to say."
    text = (data / "test.document.txt").read_text()
    assert text.split("\n\n")[0] == document
    words = ["--input", data / "test.document.txt", "--documents", "block", "--valid-share", 0, "--workers", 1]
    words += ["--gpt2-bpe", gpt2_folder, "--output-folder", tmp_path / "text"]
    assert plain_text.main([str(word) for word in words]) == 0
    assert tokenizer.decode(Sequences(tmp_path / "text" / "train")[0]) == document


def test_reasons_are_counted(tmp_path, convert):
    documents = {
        1: good(1),
        2: good(2, abstract=""),
        3: good(3, abstract="It is short."),
        4: good(4, abstract="It is long. " * 200),
        5: make_rfc(5, {"1.  Introduction": "It is short."}),
    }
    assert convert("--input", write_rfcs(tmp_path / "RFC", documents)) == 0
    assert json.loads((tmp_path / "data" / "corpus.json").read_text())["skipped"]["train"] == {
        "no abstract": 1,
        "an abstract of fewer than 20 words": 1,
        "an abstract of more than 400 words": 1,
        "a body of 500 words or fewer": 1,
    }


def test_mistakes_are_named(tmp_path, convert, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "memo.txt").write_text(good(1))
    (tmp_path / "rfc1.txt.gz").write_bytes(gzip.compress(good(1).encode())[:-20])
    for path, message in (
        ("nowhere", "nowhere: no such file"),
        ("empty", "empty: no file in it is named rfcNUMBER.txt or .txt.gz"),
        ("memo.txt", "memo.txt: is not named rfcNUMBER.txt or .txt.gz; its number decides the split"),
        ("rfc1.txt.gz", "rfc1.txt.gz: damaged gzip file"),
    ):
        assert convert("--input", tmp_path / path) == 1
        assert message in capsys.readouterr().err
    assert convert("--input", write_rfcs(tmp_path / "RFC", {1: good(1), 2: good(2)}), "--max-document-bytes", 100) == 1
    assert "rfc1.txt, line 1: too long" in capsys.readouterr().err
