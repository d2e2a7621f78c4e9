"""Reading files record by record."""

from preprocess.pipeline.records import read_lines


def test_reading_bounds_lines_and_skips_blank_ones(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes(b"12345678\n\n" + b"x" * 100_000 + b"\r\n  \n123456789\nlast")
    records = list(read_lines([path], max_line_bytes=8))
    assert [(r.line, r.data) for r in records] == [(1, b"12345678"), (3, None), (5, None), (6, b"last")]
    assert sum(record.progress for record in records) <= path.stat().st_size
