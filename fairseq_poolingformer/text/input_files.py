"""Files that users bring: compressed by gzip, bzip2, xz or zstd, told by their first bytes, or else by their names.

Those that are not text are refused, with what they are and what to do.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import importlib
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fairseq_poolingformer.extras import needs

TOO_LONG = "too long: more bytes than --max-line-bytes or --max-document-bytes allows"
TO_UTF_8 = "convert it, such as text of Windows with iconv -f CP1252 -t UTF-8"
_BLOCK_BYTES = 2**17
_XZ_MEMORY = 2**29  # bytes; xz -9 needs 65 MiB
_ZSTD_BYTES = 2**9  # of input at a time: zstandard bounds no output, and they become 16 MiB at most
_HEAD_BYTES = 512  # enough for every kind

_TABLE = (
    "write its rows as JSON lines first, such as with pandas: read_{0}(FILE).to_json(OUT, orient='records', lines=True)"
)
_WORKBOOK = ("a workbook of Excel, or another document of Office", "save it as CSV in UTF-8")
_IN_WORKBOOKS = (b"[Content_Types].xml", b"docProps/", b"_rels/", b"xl/")  # the first member of their zip archive
_FIRST_BYTES = {
    b"\xd0\xcf\x11\xe0": _WORKBOOK,
    b"PAR1": ("a Parquet file", _TABLE.format("parquet")),
    b"ARROW1": ("an Arrow file", _TABLE.format("feather")),
    b"\xff\xff\xff\xff": (
        "an Arrow file of datasets",
        "write its rows as JSON lines first: datasets.Dataset.from_file(FILE).to_json(OUT)",
    ),
    b"PK\x03\x04": ("a zip archive", "unpack it with unzip, and name the files in it"),
    b"%PDF-": ("a PDF file", "extract its text first, such as with pdftotext"),
    b"version https://git-lfs": ("a Git LFS pointer", "fetch the file itself with git lfs pull"),
}


class _Streams(io.RawIOBase):
    """Compressed streams, one after the other. Python's own readers end in silence at one that they cannot read."""

    def __init__(self, disk: BinaryIO, make: Callable, padding: bytes = b"") -> None:
        self._disk, self._make, self._padding, self._stream = disk, make, padding, make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data: Any = b""
        block = b""
        while not data:
            if self._stream.eof:
                block = self._stream.unused_data.lstrip(self._padding)
                while not block:
                    if not (read := self._disk.read(_BLOCK_BYTES)):
                        return 0
                    block = read.lstrip(self._padding)
                self._stream = self._make()
            elif self._stream.needs_input and not (block := self._disk.read(_BLOCK_BYTES)):
                raise EOFError("its end is missing")
            data = self._stream.decompress(block, len(buffer))
            block = b""
        buffer[: len(data)] = data
        return len(data)


class _Zstd:
    """A stream of zstd with the interface of the standard library's decompressors."""

    def __init__(self, stream, error: type[Exception]) -> None:
        self._stream, self._error = stream, error
        self._input, self._output = b"", memoryview(b"")

    @property
    def eof(self) -> bool:
        return self._stream.eof and not self._output

    @property
    def needs_input(self) -> bool:
        return not (self._input or self._output)

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data + self._input

    def decompress(self, data: bytes, size: int) -> memoryview:
        self._input += data
        while self._input and not self._output and not self._stream.eof:
            piece, self._input = self._input[:_ZSTD_BYTES], self._input[_ZSTD_BYTES:]
            try:
                self._output = memoryview(self._stream.decompress(piece))
            except self._error as error:
                raise OSError(str(error)) from error
        output, self._output = self._output[:size], self._output[size:]
        return output


def _open_zstd(disk: BinaryIO) -> io.BufferedReader:
    if sys.version_info >= (3, 14):
        module = importlib.import_module("compression.zstd")
        return _buffered(disk, lambda: _Zstd(module.ZstdDecompressor(), module.ZstdError))
    try:
        package = importlib.import_module("zstandard")
    except ModuleNotFoundError:
        raise needs(disk.name, "a zstd file", "zstandard", "decompress it with zstd -d") from None
    return _buffered(disk, lambda: _Zstd(package.ZstdDecompressor().decompressobj(), package.ZstdError))


def _buffered(disk: BinaryIO, make: Callable, padding: bytes = b"") -> io.BufferedReader:
    return io.BufferedReader(_Streams(disk, make, padding), _BLOCK_BYTES)


_DECOMPRESSORS: dict[str, tuple[str, bytes, Callable[[BinaryIO], Any]]] = {
    ".gz": ("gzip", b"\x1f\x8b", gzip.open),
    ".bz2": ("bzip2", b"BZh", lambda disk: _buffered(disk, bz2.BZ2Decompressor)),
    ".xz": (
        "xz",
        b"\xfd7zXZ\0",
        lambda disk: _buffered(disk, lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY), b"\0"),
    ),
    ".zst": ("zstd", b"\x28\xb5\x2f\xfd", _open_zstd),
}


def suffix_of(name: str) -> str:
    """The suffix of a file's name that says what it holds: ``.csv`` of ``rows.csv.gz``."""
    path = Path(name)
    return (path.with_suffix("") if path.suffix in _DECOMPRESSORS else path).suffix.lower()


@contextlib.contextmanager
def opened(path: str | Path, utf_8: bool = True) -> Iterator[io.BufferedReader]:
    """The content of a plain or compressed file."""
    with open(path, "rb") as disk, decompressed(disk, str(path), utf_8) as content:
        yield content


@contextlib.contextmanager
def decompressed(disk: io.BufferedReader, name: str, utf_8: bool = True) -> Iterator[io.BufferedReader]:
    """The content of an open file that can peek, as for :func:`opened`."""
    compression = _compression(disk.peek(_HEAD_BYTES))
    if not compression:
        _refuse_other_kinds(name, disk, utf_8)
    if not compression and Path(name).suffix not in _DECOMPRESSORS:
        yield disk
        return
    kind, _, decompress = _DECOMPRESSORS[compression or Path(name).suffix]
    try:
        with decompress(disk) as content:
            _refuse_other_kinds(name, content, utf_8)
            yield content
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk, not of the decompressor
        raise ValueError(f"{name}: damaged {kind} file ({error}); fetch it again") from error


def read_input(name: str) -> bytes:
    """The content of a plain or compressed file, or for ``-`` of standard input."""
    stdin: Any = sys.stdin.buffer
    with decompressed(stdin, "standard input") if name == "-" else opened(name) as content:
        return content.read()


def _compression(head: bytes) -> str:
    """The suffix of the compression that a file's first bytes tell; "" for none."""
    for suffix, (kind, first, _) in _DECOMPRESSORS.items():
        if head.startswith(first) and (kind != "bzip2" or head[4:10] in (b"1AY&SY", b"\x17rE8P\x90")):
            return suffix
    return ""


def _refuse_other_kinds(name: str, content: io.BufferedReader, utf_8: bool) -> None:
    if problem := _other_than_text(content.peek(_HEAD_BYTES), utf_8):
        raise ValueError(f"{name}: {problem}")


def _other_than_text(head: bytes, utf_8: bool) -> str | None:
    """The kind of a file that is no text, and what to do with it; None where it may be text."""
    if _compression(head):
        return "is compressed twice; decompress it once"
    for first, (kind, remedy) in _FIRST_BYTES.items():
        if head.startswith(first):
            if kind == "a zip archive" and head.startswith(_IN_WORKBOOKS, 30):
                kind, remedy = _WORKBOOK
            return f"is {kind}; {remedy}"
    if head[257:262] == b"ustar":
        return "is a tar archive; unpack it with tar -xf, and name the files in it"
    head = head[:_HEAD_BYTES]
    if utf_8 and (head.startswith((b"\xff\xfe", b"\xfe\xff")) or (len(head) > 1 and head.count(0) * 3 > len(head))):
        # without a byte order mark, iconv takes the machine's; most characters of most texts are below U+0100
        order = "" if head[:1] >= b"\xfe" else "BE" if head[::2].count(0) > head[1::2].count(0) else "LE"
        return f"is text in UTF-16; convert it with iconv -f UTF-16{order} -t UTF-8"
    return None


def decoded(line: bytes, number: int, problem: str = "") -> tuple[str, str]:
    """A line as text, and why it cannot be used, unless there is a problem already."""
    try:
        return line.decode("utf-8"), problem
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: byte {error.start} of line {number}, {error.reason}; {TO_UTF_8}"
        return line.decode("utf-8", "replace"), problem or reason
