import contextlib
import gzip
import json
import random
import tracemalloc

import pytest

from fairseq_poolingformer.text.input_files import TO_UTF_8
from preprocess import arxiv_pubmed
from preprocess.pipeline.records import Record
from preprocess.records.options import read
from preprocess.records.sources import expand, splits_of
from tests.preprocess.records import test_shapes as shapes

BASES = [
    *("JSON lines", "a JSON array", "an object with one list of records", "CSV", "TSV", "line pairs .src and .tgt"),
    *("texts and summaries in two folders", "gzip", "bzip2", "xz", "zstd", "Parquet"),
]


DAMAGES = [
    lambda data, place, rng: data[:place],
    lambda data, place, rng: data[:place] + bytes(rng.randrange(1, 9)) + data[place:],
    lambda data, place, rng: data[:place] + rng.randbytes(rng.randrange(1, 20)) + data[place + rng.randrange(20) :],
    lambda data, place, rng: data[:place] + bytes([rng.choice(b'"{}[],\n\r\xe9\\')]) + data[place:],
    lambda data, place, rng: data + data[place:],
    lambda data, place, rng: data.replace(b"\n", b"\r\n"),
    lambda data, place, rng: bytes(b ^ (1 << rng.randrange(8)) if rng.random() < 0.01 else b for b in data),
]


@pytest.mark.full
@pytest.mark.parametrize("shape", BASES)
def test_damage_is_explained(shape, tmp_path):
    arguments = list(map(str, shapes.SHAPES[shape](tmp_path)))
    rng, messages = random.Random(f"{shape}0"), []
    whole = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    for _ in range(20):
        victim = rng.choice(list(whole))
        data = whole[victim]
        victim.write_bytes(rng.choice(DAMAGES)(data, rng.randrange(len(data) + 1), rng))
        try:
            sources = splits_of(arguments[1])["train"] if arguments[0] == "--data" else expand(arguments[1:])
            for record in read(sources, 4096):
                assert isinstance(record, Record)
                assert str(tmp_path) in record.file
                assert arxiv_pubmed.parse(record) if record.data is not None else record.problem
        except ValueError as error:
            messages.append(str(error))
        victim.write_bytes(data)
    assert all(str(tmp_path) in message and "\n" not in message for message in messages)


def problems(path, *max_bytes):
    """The problems of records, by line."""
    records = read(expand([str(path)]), *max_bytes)
    return {record.line: record.problem for record in records if record.data is None}


def fields(path, *max_bytes):
    return [json.loads(record.data) for record in read(expand([str(path)]), *max_bytes) if record.data]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b,a\n1,2,3\n", r"x\.csv, line 1: two columns are called 'a'; the first row must name the columns"),
        ('a,b\n1,"2\n3,4\n', r"x\.csv, line 2: a quotation mark opens a field in this row and nothing closes it"),
        ("a,b\n1,2\n".encode("utf-16"), r"x\.csv: is text in UTF-16; convert it with iconv"),
        (b"PK\x03\x04 no archive", r"x\.csv: is a zip archive"),
        (b"PK\x03\x04".ljust(30, b"\0") + b"docProps/app.xml", r"x\.csv: is a workbook of Excel.*; save it as CSV"),
        ("A story.\nIt goes on.\n", r"x\.txt: neither JSON nor a table; tables end in \.csv"),
    ],
)
def test_tables_that_are_none(content, message, tmp_path):
    path = tmp_path / ("x.txt" if r"x\.txt" in message else "x.csv")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        problems(path)


def test_a_field_over_several_lines_is_refused_where_quotation_marks_may_be_text(tmp_path):
    """A TSV is often written without quoting, so that two marks would swallow the rows between them."""
    content = 'a\tb\n1\t"2\n3\t4"\n5\t"6"\n'
    for name in ("x.tsv", "x.csv"):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=rf"{name}, line 2: .* that ends in line 3; write the .* as CSV if"):
            fields(tmp_path / name)
    (tmp_path / "x.csv").write_text(content.replace("\t", ","))
    assert [row["b"] for row in fields(tmp_path / "x.csv")] == ["2\n3,4", "6"]


def test_bad_rows_are_rejected_and_the_good_ones_go_on(tmp_path):
    path = tmp_path / "x.csv"
    rows = [b"a,b", b"1,2", b"1", b"1,2,3", b"caf\xe9,2", b'"1"x,2', b"1," + b"y" * 200, b'"two\nlines",2', b"", b"3,4"]
    path.write_bytes(b"\r\n".join(rows))
    assert fields(path, 100) == [{"a": "1", "b": "2"}, {"a": "two\nlines", "b": "2"}, {"a": "3", "b": "4"}]
    reasons = problems(path, 100)
    kinds = {line: reason.partition(":")[0] for line, reason in reasons.items()}
    assert kinds == {3: "ragged row", 4: "ragged row", 5: "not UTF-8", 6: "broken row", 7: "too long"}
    assert reasons[3] == "ragged row: 1 fields, and there are 2 columns"
    assert "byte 3 of line 5" in reasons[5]
    assert reasons[6].endswith("; write the rows as JSON lines if quotation marks are part of the text")
    text = "long document, " * 200_000  # megabytes
    path.write_text(f'document,summary\n"{text}",x\n')
    assert fields(path) == [{"document": text, "summary": "x"}]


def test_line_pairs_must_match(tmp_path):
    (tmp_path / "x.src").write_text("a\n\nc\n")
    (tmp_path / "x.tgt").write_text("1\n2\n3\n")
    assert [row["document"] for row in fields(tmp_path / "x.src")] == ["a", "", "c"]
    (tmp_path / "x.tgt").write_text("1\n2\n")
    with pytest.raises(ValueError, match=r"x\.tgt: ends after line 2, and .*x\.src does not"):
        fields(tmp_path / "x.src")
    (tmp_path / "x.tgt").unlink()
    with pytest.raises(ValueError, match=r"x\.src: x\.tgt is missing"):
        fields(tmp_path / "x.src")


def test_a_text_without_its_summary_is_rejected(tmp_path):
    for name in ("documents/a.txt", "documents/b.txt", "summaries/a.txt", "summaries/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"caf\xe9" if name == "documents/a.txt" else b"text")
    assert [(record.file.rpartition("/")[2], record.problem) for record in read(expand([str(tmp_path)]))] == [
        ("a.txt", f"not UTF-8: byte 3 of a.txt, unexpected end of data; {TO_UTF_8}"),
        ("b.txt", "missing file: the text has no summary"),
        ("c.txt", "missing file: the text has no document"),
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty: no files in it"):
        expand([str(tmp_path / "empty")])


@pytest.mark.parametrize("start", [b'{"a": "', b'[{"a": "', b'{"k": {"a": "'])
def test_memory_is_bounded_by_the_size_of_a_record(start, tmp_path):
    """12 MB that compress to some thousands of bytes, with records of up to 100 kB."""
    (tmp_path / "x.json").write_bytes(gzip.compress(start + b"x" * 12_000_000))
    tracemalloc.start()
    try:
        with contextlib.suppress(ValueError):
            assert all(record.data is None for record in read(expand([str(tmp_path / "x.json")]), 100_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000, f"{peak:,} bytes"
