"""Parts of a split: where they are cut, what one holds, and which of them a run or a machine encodes."""

import functools
import itertools
import json

import numpy as np
import pytest

from fairseq_poolingformer.tasks.summarization import PAIRS
from preprocess.pipeline import parts
from preprocess.pipeline.encode import Encoded
from preprocess.pipeline.parts import Encoding, Part, encode_part, encode_split, group, mark_finished
from preprocess.pipeline.records import Example, Record, Reject, Skipped
from preprocess.pipeline.splits import SplitRecords

SOURCE, TARGET = PAIRS.ids


def record(line, data=b"x", progress=0):
    return Record("corpus.txt", line, data, progress)


def parse(line):
    """``id|source|target`` becomes an example, anything else says why not."""
    text = line.data.decode()
    for start, kind in (("skip ", Skipped), ("reject ", Reject)):
        if text.startswith(start):
            return kind(text.removeprefix(start))
    name, *texts = text.split("|")
    return Example(name, tuple(texts))


def encode(tokenizer, example):
    """Each digit is a token."""
    arrays = [np.array([int(digit) for digit in text], np.int64) for text in example.texts]
    texts = {"id": example.id, "summary": example.texts[-1]}
    return Encoded(dict(zip(PAIRS.ids, arrays, strict=True)), texts)


@pytest.fixture
def encoding(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "_tokenizer", lambda folder, fingerprint: range(300))
    return Encoding(parse, encode, PAIRS, tmp_path, "fingerprint")


def lines_of(groups):
    return [[member.line for member in members] for members in groups]


def test_parts_are_cut_by_bytes_and_by_records(monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 10)
    monkeypatch.setattr(parts, "PART_RECORDS", 3)
    sizes = [4, 5, 1, 10, 0, 0, 0, 99, 4, 4]
    records = [record(line, b"x" * size if size else None) for line, size in enumerate(sizes)]
    assert lines_of(group(iter(records))) == [[0, 1, 2], [3], [4, 5, 6], [7], [8, 9]]
    assert lines_of(group(iter(records[:1]))) == [[0]]
    assert lines_of(group(iter([]))) == []


def test_a_part_by_hand(encoding):
    lines = ["a|12|3", "reject no text: 7", "skip redirect", "bc|4|56", " |1|2", "skip redirect", "skip empty"]
    records = [record(number, line.encode()) for number, line in enumerate(lines, 1)] + [record(8, None)]
    part = Part(encoding.folder, "train", 12)
    assert part.load() is None
    content = encode_part(part, records, encoding)
    assert content["places"] == [["corpus.txt", 1], ["corpus.txt", 4]]
    assert content["texts"] == {"id": ["a", "bc"], "summary": ["3", "56"]}
    assert content["sizes"] == {SOURCE: [2, 1], TARGET: [1, 2]}
    rejects = [(reject["before"], reject["file"], reject["line"]) for reject in content["rejects"]]
    assert rejects == [(1, "corpus.txt", 2), (2, "corpus.txt", 5), (2, "corpus.txt", 8)]
    assert [reject["reason"].split(":")[0] for reject in content["rejects"]] == ["no text", "empty id", "too long"]
    assert content["skipped"] == {"empty": 1, "redirect": 2}
    assert part.json.name == "train-000000-000012.json"
    assert part.load() == json.loads(json.dumps(content))
    for array, ids in ((SOURCE, [1, 2, 4]), (TARGET, [3, 5, 6])):
        assert np.frombuffer(part.array(array).read_bytes(), np.uint16).tolist() == ids
    lines = [b"a|12|3", b"b|12|456", b"c|1|23", b"d|123|", b"e|0|1"]
    documents = encode_part(
        Part(encoding.folder, "train", 0), list(itertools.starmap(record, enumerate(lines))), encoding
    )
    assert documents["digests"][0] == documents["digests"][1], "the summary is learned and is no part of the document"
    assert len(set(documents["digests"])) == 4


@pytest.mark.parametrize("torn", [False, True])
def test_files_are_encoded_each_by_itself_and_are_the_parts_of_all(encoding, monkeypatch, torn):
    """A file that another machine has finished is not read; of a torn part on, it is."""
    monkeypatch.setattr(parts, "PART_RECORDS", 2)
    read, advanced = [], []

    def records(file):
        read.append(file)
        yield from (record(number, f"{file}-{number}|1|2".encode(), progress=10) for number in range(5))

    files = tuple(SplitRecords(functools.partial(records, file), 50) for file in range(3))
    split = SplitRecords(lambda: None, 150, files=files)
    for file in (2, 0):
        encoded = list(encode_split("valid", split, encoding, 1, lambda size: None, [file]))
        assert [(part.file, part.number) for part, _, _ in encoded] == [(file, number) for number in range(3)]
        mark_finished(encoding.folder, "valid", file, len(encoded))
    if torn:
        Part(encoding.folder, "valid", 1, 2).json.write_text("")
    read.clear()
    whole = list(encode_split("valid", split, encoding, 1, advanced.append))
    assert read == [1, 2] if torn else [1]
    assert [(part.file, part.number) for part, _, _ in whole] == [(file, n) for file in range(3) for n in range(3)]
    ids = [name for _, content, _ in whole for name in content["texts"]["id"]]
    assert ids == [f"{file}-{number}" for file in range(3) for number in range(5)]
    assert sum(advanced) == (130 if torn else 150)  # what was yielded before the torn part is not counted


def test_parts_of_an_earlier_run_are_not_encoded_again(encoding, monkeypatch):
    monkeypatch.setattr(parts, "PART_RECORDS", 2)
    records, advanced, encoded = [record(n, f"{n}|1|2".encode(), progress=1) for n in range(6)], [], []
    whole = list(encode_split("train", SplitRecords.of_records(records), encoding, 1, advanced.append))
    Part(encoding.folder, "train", 1).json.unlink()  # it was not whole

    def counting(part, members, encoding, original=encode_part):
        encoded.append(part.number)
        return original(part, members, encoding)

    monkeypatch.setattr(parts, "encode_part", counting)
    again = list(encode_split("train", SplitRecords.of_records(records), encoding, 1, advanced.append))
    assert encoded == [1]
    assert [reused for _, _, reused in again] == [True, False, True]
    assert [content for _, content, _ in again] == [content for _, content, _ in whole]
    assert advanced == [2] * 6


@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"{}", b"[1]", b'{"sizes"', None])
@pytest.mark.parametrize("file", ["json", "array"])
def test_a_part_that_a_loss_of_power_has_torn_is_made_again(encoding, content, file, caplog):
    records = [record(number, f"{number}|12|3".encode()) for number in range(3)]
    part = Part(encoding.folder, "train", 0)
    whole = encode_part(part, records, encoding)
    path = part.json if file == "json" else part.array(SOURCE)
    path.unlink() if content is None else path.write_bytes(content)
    again = list(encode_split("train", SplitRecords.of_records(records), encoding, 1, lambda size: None))
    assert again == [(part, whole, False)]
    assert part.load_whole() == json.loads(json.dumps(whole))
    assert "train-000000-000000.json: cannot be read" in caplog.text or (file, content) == ("json", None)
