"""Parts of a split: where they are cut, what one holds, and which of them a run or a machine encodes."""

import json
from types import SimpleNamespace

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


def parse(given):
    """``id|source|target`` becomes an example, anything else says why not."""
    text = given.data.decode()
    if text.startswith("skip "):
        return Skipped(text[5:])
    if text.startswith("reject "):
        return Reject(text[7:])
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


def lines_of(found):
    return [[member.line for member in members] for members in found]


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
    found = encode_part(part, records, encoding)
    assert found["places"] == [["corpus.txt", 1], ["corpus.txt", 4]]
    assert found["texts"] == {"id": ["a", "bc"], "summary": ["3", "56"]}
    assert found["sizes"] == {SOURCE: [2, 1], TARGET: [1, 2]}
    rejects = [(reject["before"], reject["file"], reject["line"]) for reject in found["rejects"]]
    assert rejects == [(1, "corpus.txt", 2), (2, "corpus.txt", 5), (2, "corpus.txt", 8)]
    assert [reject["reason"].split(":")[0] for reject in found["rejects"]] == ["no text", "empty id", "too long"]
    assert found["skipped"] == {"empty": 1, "redirect": 2}
    assert part.json.name == "train-000000-000012.json"
    assert part.load() == json.loads(json.dumps(found))
    assert np.frombuffer(part.array(SOURCE).read_bytes(), np.uint16).tolist() == [1, 2, 4]
    assert np.frombuffer(part.array(TARGET).read_bytes(), np.uint16).tolist() == [3, 5, 6]


def test_digests_tell_documents_apart_and_not_their_outputs(encoding):
    lines = [b"a|12|3", b"b|12|456", b"c|1|23", b"d|123|", b"e|0|1"]
    members = [record(n, line) for n, line in enumerate(lines)]
    digests = encode_part(Part(encoding.folder, "train", 0), members, encoding)["digests"]
    assert digests[0] == digests[1], "the summary is learned and is no part of the document"
    assert len(set(digests)) == 4


@pytest.mark.parametrize("torn", [False, True])
def test_files_are_encoded_each_by_itself_and_are_the_parts_of_all(encoding, monkeypatch, torn):
    """A file that another machine has finished is not read; of a torn part on, it is."""
    monkeypatch.setattr(parts, "PART_RECORDS", 2)
    read = []

    def reader(file):
        def records():
            read.append(file)
            yield from (record(number, f"{file}-{number}|1|2".encode(), progress=10) for number in range(5))

        return SplitRecords(records, 50)

    files = tuple(map(reader, range(3)))
    split = SplitRecords(lambda: None, 150, files=files)
    for file in (2, 0):
        found = list(encode_split("valid", split, encoding, 1, lambda size: None, [file]))
        assert [(part.file, part.number) for part, _, _ in found] == [(file, number) for number in range(3)]
        mark_finished(encoding.folder, "valid", file, len(found))
    if torn:
        Part(encoding.folder, "valid", 1, 2).json.write_text("")
    read.clear()
    advanced = []
    whole = list(encode_split("valid", split, encoding, 1, advanced.append))
    assert read == [1, 2] if torn else [1]
    assert [(part.file, part.number) for part, _, _ in whole] == [(file, n) for file in range(3) for n in range(3)]
    ids = [name for _, content, _ in whole for name in content["texts"]["id"]]
    assert ids == [f"{file}-{number}" for file in range(3) for number in range(5)]
    assert sum(advanced) == (130 if torn else 150)  # what was yielded before the torn part is not counted


def test_parts_of_an_earlier_run_are_not_encoded_again(encoding, monkeypatch):
    monkeypatch.setattr(parts, "PART_RECORDS", 2)
    records, advanced = [record(number, f"{number}|1|2".encode(), progress=1) for number in range(6)], []
    first = list(encode_split("train", SplitRecords.of_records(records), encoding, 1, advanced.append))
    Part(encoding.folder, "train", 1).json.unlink()  # it was not whole
    encoded = SimpleNamespace(parts=[])

    def counting(part, members, encoding, original=encode_part):
        encoded.parts.append(part.number)
        return original(part, members, encoding)

    monkeypatch.setattr(parts, "encode_part", counting)
    second = list(encode_split("train", SplitRecords.of_records(records), encoding, 1, advanced.append))
    assert encoded.parts == [1]
    assert [reused for _, _, reused in second] == [True, False, True]
    assert [content for _, content, _ in second] == [content for _, content, _ in first]
    assert advanced == [2] * 6


@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"{}", b"[1]", b'{"sizes"'])
@pytest.mark.parametrize("torn", ["json", "array", "no array"])
def test_a_part_that_a_loss_of_power_has_torn_is_made_again(encoding, content, torn, caplog):
    records = [record(number, f"{number}|12|3".encode()) for number in range(3)]
    part = Part(encoding.folder, "train", 0)
    whole = encode_part(part, records, encoding)
    if torn == "json":
        part.json.write_bytes(content)
    elif torn == "array":
        part.array(SOURCE).write_bytes(content)
    else:
        part.array(SOURCE).unlink()
    found = list(encode_split("train", SplitRecords.of_records(records), encoding, 1, lambda size: None))
    assert found == [(part, whole, False)]
    assert part.load_whole() == json.loads(json.dumps(whole))
    assert "train-000000-000000.json: cannot be read" in caplog.text
