import bz2
import gzip
import json

import pytest
from fairseq.data import Dictionary, data_utils

from fairseq_poolingformer.text.input_files import TO_UTF_8
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import plain_text
from preprocess.pipeline.records import Record
from preprocess.pipeline.splits import place_of
from preprocess.plain_text import parse, read_blocks, read_whole
from tests.preprocess import conftest


def convert(output, *flags, valid_share=0):
    return conftest.convert(plain_text, output, "--valid-share", valid_share, *flags)


def documents(folder, split):
    """The text of a split as fairseq reads it."""
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    dataset = data_utils.load_indexed_dataset(str(folder / split), dictionary, dataset_impl="mmap")
    tokenizer = load_tokenizer(folder)
    assert all(ids[-1] == dictionary.eos() for ids in dataset)
    return [tokenizer.decode(ids.tolist()) for ids in dataset]


def test_a_document_each_file(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeff the long document\r\n\r\n注意力 機構\rcafé \n\n".encode())
    (tmp_path / "b.txt").write_text("another 😀")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress("การ".encode()))
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "valid.text").write_text("what it is")
    out = tmp_path / "out"
    inputs = ["--input", tmp_path / "*.txt", tmp_path / "c.txt.gz", "--valid", tmp_path / "valid.text"]
    assert convert(out, *inputs, "--write-text", valid_share=0.5) == 0
    texts = ["the long document\n\n注意力 機構\ncafé", "another 😀", "การ"]
    assert documents(out, "train") == [text.replace("\n", " ") for text in texts]
    assert documents(out, "valid") == ["what it is"]
    assert (out / "train.text.txt").read_text(encoding="utf-8") == "".join(text + "\n\n" for text in texts)
    assert (out / "train.id.txt").read_text().split() == ["a.txt:1", "b.txt:1", "c.txt.gz:1"]
    corpus = json.loads((out / "corpus.json").read_text())
    assert corpus["skipped"] == {"train": {"fewer than 1 characters": 1}, "valid": {}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"one text\n\nof two blocks", "only one document (a.txt:1), and the valid split takes one"),
        (b"caf\xe9", "train: no good example. train: 1 of 1 lines rejected (1 × not UTF-8)"),
        (b" \n", "train: no good example. All were skipped: 1 × fewer than 1 characters"),
    ],
)
def test_without_two_documents_there_is_no_valid_split(tmp_path, capsys, content, message):
    (tmp_path / "a.txt").write_bytes(content)
    assert convert(tmp_path / "out", "--input", tmp_path / "a.txt", valid_share=0.005) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("share", "taken"), [(1e-9, "no"), (1 - 1e-9, "every")])
def test_both_splits_have_a_document(tmp_path, capsys, share, taken):
    """The first of the two in the order of hashes is valid, also where the share is too small or too large."""
    texts = sorted(("one", "another"), key=place_of)
    for name, texts_of in (("a.txt", texts), ("b.txt", texts[::-1])):
        (tmp_path / name).write_bytes("\n\n".join(texts_of).encode())
        out = tmp_path / f"{name}-{share}"
        assert convert(out, "--input", tmp_path / name, "--documents", "block", valid_share=share) == 0
        assert [documents(out, split) for split in ("valid", "train")] == [[text] for text in texts]
        assert f"takes {taken} document of this corpus; valid gets one" in capsys.readouterr().err


def test_a_document_each_block(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\n \n\nthe theory\nof it\n\t\nother\r\n\r\n\nlast")
    (tmp_path / "b.txt.bz2").write_bytes(bz2.compress(b"attention\n\n"))
    out = tmp_path / "out"
    assert convert(out, "--input", tmp_path / "a.txt", tmp_path / "b.txt.bz2", "--documents", "block") == 0
    assert documents(out, "train") == ["the theory of it", "other", "last", "attention"]
    assert (out / "train.id.txt").read_text().split() == ["a.txt:4", "a.txt:7", "a.txt:10", "b.txt.bz2:1"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_blocks_of_any_line_ends(tmp_path, end):
    """A file of a system whose lines end in a carriage return alone has blocks, and its lines have numbers, too."""
    path = tmp_path / "a.txt"
    path.write_bytes(end.join([b"", b"the theory", b"of it \xe9\x85", b" \t", b"", b"other \xff", b"last"]))
    records = list(read_blocks([path]))
    assert [(record.line, record.data.split(end)) for record in records] == [
        (2, [b"the theory", b"of it \xe9\x85", b""]),
        (6, [b"other \xff", b"last"]),
    ]
    assert sum(record.progress for record in records) == path.stat().st_size
    assert "byte 6 of the document, in line 6" in parse(records[1]).reason
    assert [record.data for record in read_blocks([path], max_bytes=11)] == [None, None]


def test_blocks_and_files_beyond_the_bound_are_not_loaded(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"short\n\n" + b"x" * 100 + b"\nmore\n\n" + b"one\n" * 20 + b"\nlast\n")
    blocks = list(read_blocks([path], max_bytes=40))
    assert [(record.line, record.data) for record in blocks] == [(1, b"short\n"), (3, None), (6, None), (27, b"last\n")]
    assert sum(record.progress for record in blocks) == path.stat().st_size
    assert [record.data for record in read_whole([path], max_bytes=40)] == [None]
    assert [len(record.data) for record in read_whole([path], max_bytes=200)] == [path.stat().st_size]


def test_bad_documents_are_named(tmp_path, capsys):
    reason = parse(Record("a.txt", 3, b"\n\xff")).reason
    assert reason == f"not UTF-8: byte 1 of the document, in line 4: invalid start byte; {TO_UTF_8}"
    (tmp_path / "a.txt").write_bytes(b"good\n\nfine\nbad \xff\n\n" + b"x" * 50 + b"\n\ngood")
    out = tmp_path / "out"
    args = ["--input", tmp_path / "a.txt", "--documents", "block", "--max-document-bytes", "40"]
    assert convert(out, *args) == 1
    assert "2 of 4 lines rejected" in capsys.readouterr().err
    assert convert(out, *args, "--max-reject-fraction", "0.5") == 0
    assert [(reject["line"], reject["reason"]) for reject in conftest.rejects(out)] == [
        (3, f"not UTF-8: byte 9 of the document, in line 4: invalid start byte; {TO_UTF_8}"),
        (6, "too long: more bytes than --max-line-bytes or --max-document-bytes allows"),
    ]
    assert documents(out, "train") == ["good", "good"]


def test_a_small_corpus_with_a_document_that_is_too_long_gets_a_valid_split(tmp_path):
    (tmp_path / "a.txt").write_text("the theory of attention\n\nshort\n\nother\n\nlast\n")
    args = ["--input", tmp_path / "a.txt", "--documents", "block", "--max-document-bytes", "10"]
    args += ["--max-reject-fraction", "0.5"]
    assert convert(tmp_path / "data", *args, valid_share=0.001) == 0
    assert len(documents(tmp_path / "data", "train")) == 2
    assert len(documents(tmp_path / "data", "valid")) == 1
