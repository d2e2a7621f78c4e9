"""Finding files, and reading them record by record."""

import bz2
import gzip

import pytest

from preprocess.pipeline.records import InputError, expand, read_lines


def test_files_come_in_the_order_of_the_arguments_and_sorted_within_a_pattern(tmp_path):
    names = ["b.txt", "a.txt", "deep/er/c.txt", "[x].txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.txt").mkdir()

    def found(*patterns):
        return [str(path.relative_to(tmp_path)) for path in expand([str(tmp_path / pattern) for pattern in patterns])]

    assert found("b.txt", "?.txt", "b.txt") == ["b.txt", "a.txt"]
    assert found("**/c.txt", "[x].txt") == ["deep/er/c.txt", "[x].txt"]  # a name that is a pattern, too
    for missing in ("c.txt", "folder.txt", "*.json"):
        with pytest.raises(InputError, match="no such file"):
            found("a.txt", missing)


def test_reading_bounds_lines_and_skips_blank_ones(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes(b"12345678\n\n" + b"x" * 100_000 + b"\r\n  \n123456789\nlast")
    records = list(read_lines([path], max_line_bytes=8))
    assert [(r.line, r.data) for r in records] == [(1, b"12345678"), (3, None), (5, None), (6, b"last")]
    assert sum(record.progress for record in records) == path.stat().st_size


@pytest.mark.parametrize(
    ("suffix", "compress", "kind"), [("gz", gzip.compress, "gzip"), ("bz2", bz2.compress, "bzip2")]
)
def test_compressed_lines_and_damaged_files(tmp_path, suffix, compress, kind):
    path = tmp_path / f"lines.{suffix}"
    path.write_bytes(compress(b"one\r\n") + compress(b"two"))  # of several members, as parallel compressors write
    records = list(read_lines([path]))
    assert [record.data for record in records] == [b"one", b"two"]
    assert sum(record.progress for record in records) == path.stat().st_size
    for damaged in (compress(b"one\n" * 99)[:-5], b"no such file", compress(b"x")[:12] + b"\xff" * 30):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=rf"lines.{suffix}: damaged {kind} file .*; fetch it again"):
            list(read_lines([path]))
