import gzip
from pathlib import Path

import pytest

from preprocess.pipeline.json_stream import read_elements
from preprocess.pipeline.records import expand, read_lines
from preprocess.plain_text import read_blocks, read_whole
from preprocess.wikitext.dump import read_pages


def test_files_come_in_the_order_of_the_arguments_and_sorted_within_a_pattern(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b.txt", "a.txt", "deep/er/c.txt", "[x].txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    Path("folder.txt").mkdir()
    assert list(map(str, expand(["b.txt", "?.txt", "b.txt"]))) == ["b.txt", "a.txt"]
    files = list(map(str, expand(["**/c.txt", "[x].txt"])))
    assert files == ["deep/er/c.txt", "[x].txt"]  # a name that is a pattern, too
    for missing, why in (("c.txt", "no such file"), ("folder.txt", "is a folder"), ("*.json", "no such file")):
        with pytest.raises(ValueError, match=why):
            expand(["a.txt", missing])


def test_reading_bounds_lines_and_skips_blank_ones(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes(b"12345678\n\n" + b"x" * 100_000 + b"\r\n  \n123456789\nlast")
    records = list(read_lines([path], max_line_bytes=8))
    assert [(r.line, r.data) for r in records] == [(1, b"12345678"), (3, None), (5, None), (6, b"last")]
    assert sum(record.progress for record in records) == path.stat().st_size


def test_progress_counts_bytes_on_disk(tmp_path):
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(b"one\r\n") + gzip.compress(b"two"))
    records = list(read_lines([path]))
    assert [record.data for record in records] == [b"one", b"two"]
    assert sum(record.progress for record in records) == path.stat().st_size


OTHERS = {
    "data.parquet": (b"PAR1\x15\x04", "is a Parquet file; write its rows as JSON lines first, .*read_parquet"),
    "data.arrow": (b"ARROW1\0\0", "is an Arrow file; write"),
    "data.zip": (b"PK\x03\x04\x14", "is a zip archive; unpack it"),
    "data.jsonl.gz": (gzip.compress(gzip.compress(b"{}")), "is compressed twice; decompress it once"),
    "data.tar.gz": (gzip.compress(b"name".ljust(257, b"\0") + b"ustar\x0000"), "is a tar archive"),
    "data.pdf": (b"%PDF-1.7\n", "is a PDF file"),
    "pointer.jsonl": (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer; .* git lfs pull"),
    "utf-16.jsonl": ('{"a": 1}\n'.encode("utf-16"), "is text in UTF-16; convert it with iconv -f UTF-16 -t"),
    "utf-16-le.jsonl": ('{"a": 1}\n'.encode("utf-16-le"), "is text in UTF-16; convert it with iconv -f UTF-16LE -t"),
    "utf-16-be.jsonl": ('{"a": 1}\n'.encode("utf-16-be"), "is text in UTF-16; convert it with iconv -f UTF-16BE -t"),
    "data-0.arrow": (b"\xff\xff\xff\xff\x08\0\0\0" + bytes(500), "is an Arrow file of datasets; .*from_file"),
}


@pytest.mark.parametrize("read", [read_lines, read_elements, read_whole, read_blocks, read_pages])
@pytest.mark.parametrize("name", OTHERS)
def test_other_files_are_named_as_what_they_are(name, read, tmp_path):
    content, message = OTHERS[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}: {message}"):
        list(read([tmp_path / name]))


@pytest.mark.parametrize("text", ["BZh is an abbreviation", "PK", "", "\ufeffBOM", "a\0b text with a NUL"])
def test_text_is_not_taken_for_another_file(text, tmp_path):
    (tmp_path / "text").write_text(text, encoding="utf-8")
    assert [record.data.decode() for record in read_lines([tmp_path / "text"])] == [text] * bool(text)
