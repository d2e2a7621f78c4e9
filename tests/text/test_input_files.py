import bz2
import gzip
import lzma

import pytest

from fairseq_poolingformer.text.input_files import opened


def content(path):
    with opened(path) as file:
        return file.read()


def zstd(data):
    return pytest.importorskip("zstandard").ZstdCompressor().compress(data)


@pytest.mark.parametrize(
    ("suffix", "compress", "kind"),
    [("gz", gzip.compress, "gzip"), ("bz2", bz2.compress, "bzip2"), ("xz", lzma.compress, "xz"), ("zst", zstd, "zstd")],
)
def test_compressed_and_damaged_files(tmp_path, suffix, compress, kind):
    if suffix == "zst":
        pytest.importorskip("zstandard")
    path = tmp_path / f"lines.{suffix}"
    other = tmp_path / "whatever its name"
    other.write_bytes(compress(b"one"))
    assert content(other) == b"one"
    path.write_bytes(compress(b"one\r\n") + compress(b"two"))  # of several members, as parallel compressors write
    assert content(path) == b"one\r\ntwo"
    for damaged in (compress(b"one\n" * 99)[:-5], b"no such file", compress(b"x")[:12] + b"\xff" * 30):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"lines.{suffix}: damaged {kind} file .*; fetch it again"):
            content(path)


def flipped(data):
    """With a second stream that is damaged at its beginning."""
    place = data.index(b"BZh", 1) + 1
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("damage", [flipped, lambda data: data + b"trailing", lambda data: data[:-3]])
@pytest.mark.parametrize("lines", [3, 100_000])
def test_bzip2_does_not_end_in_silence(damage, lines, tmp_path):
    """Python's own reader does, at whatever follows the first stream."""
    text = b"".join(b"line %d\n" % number for number in range(lines))
    path = tmp_path / "lines.bz2"
    path.write_bytes(bz2.compress(text) + bz2.compress(b"the end"))
    assert content(path) == text + b"the end"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"lines\.bz2: damaged bzip2 file"):
        content(path)
