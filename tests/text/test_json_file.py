import gzip
import lzma

import pytest

from fairseq_poolingformer.text.json_file import read_json_file


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b'{"a": 1}\n{"b": 2}', "line 2: not JSON .Extra data"),
        ("a.json", b"PAR1\x15", "is a Parquet file; write its rows as JSON lines"),
        ("a.json.gz", gzip.compress(b"\x28\xb5\x2f\xfd", mtime=0), "is compressed twice; decompress it once"),
        ("a.json.xz", lzma.compress(b"{}")[:-4], "damaged xz file .its end is missing.; fetch it again"),
        ("a.json", '{"a": 1}'.encode("utf-16"), "is text in UTF-16; convert it"),
        ("a.json", b'{"a": "\xff"}', "not UTF-8 .byte 7"),
    ],
)
def test_what_is_no_json_is_named(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}(:|,) {message}"):
        read_json_file(tmp_path / name)


def test_members_of_gzip_and_a_byte_order_mark(tmp_path):
    (tmp_path / "a.json").write_bytes(gzip.compress(b'\xef\xbb\xbf{"a":', mtime=0) + gzip.compress(b" 1}"))
    assert read_json_file(tmp_path / "a.json") == {"a": 1}
