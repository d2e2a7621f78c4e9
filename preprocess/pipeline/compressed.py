"""Plain and compressed files: gzip, bzip2, xz and zstd, told by their first bytes, or else by their names."""

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
from typing import BinaryIO

from fairseq_poolingformer.text.json_file import HEAD_BYTES, other_than_text

from .errors import InputError, needs

_BLOCK_BYTES = 2**17
_XZ_MEMORY = 2**29  # bytes; xz -9 needs 65 MiB
_ZSTD_BYTES = 2**9  # of input at a time: zstandard bounds no output, and they become 16 MiB at most


class _Streams(io.RawIOBase):
    """Compressed streams, one after the other. Python's own readers end in silence at one that they cannot read."""

    def __init__(self, disk: BinaryIO, make: Callable, padding: bytes = b"") -> None:
        self._disk, self._make, self._padding, self._stream = disk, make, padding, make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        data, block = b"", b""
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
        found, self._output = self._output[:size], self._output[size:]
        return found


def _open_zstd(disk: BinaryIO) -> BinaryIO:
    if sys.version_info >= (3, 14):
        own = importlib.import_module("compression.zstd")
        return _buffered(disk, lambda: _Zstd(own.ZstdDecompressor(), own.ZstdError))
    try:
        package = importlib.import_module("zstandard")
    except ModuleNotFoundError:
        raise needs(disk.name, "a zstd file", "zstandard", "decompress it with zstd -d") from None
    return _buffered(disk, lambda: _Zstd(package.ZstdDecompressor().decompressobj(), package.ZstdError))


def _buffered(disk: BinaryIO, make: Callable, padding: bytes = b"") -> BinaryIO:
    return io.BufferedReader(_Streams(disk, make, padding), _BLOCK_BYTES)


_DECOMPRESSORS = {
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
def open_compressed(path: Path, utf_8: bool = True) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a plain or compressed file: its content, and the file on disk, whose position tells progress."""
    with open(path, "rb") as disk, decompressed(disk, str(path), utf_8) as content:
        yield content, disk


@contextlib.contextmanager
def decompressed(disk: BinaryIO, name: str, utf_8: bool = True) -> Iterator[BinaryIO]:
    """The content of an open file that can peek, as for :func:`open_compressed`."""
    suffix = _compression(disk, Path(name).suffix)
    if suffix is None:
        _refuse_other_kinds(name, disk, utf_8)
        yield disk
        return
    kind, first, decompress = _DECOMPRESSORS[suffix]
    if not disk.peek(len(first)).startswith(first):
        _refuse_other_kinds(name, disk, utf_8)
    try:
        with decompress(disk) as content:
            _refuse_other_kinds(name, content, utf_8)
            yield content
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk, not of the decompressor
        raise InputError(f"{name}: damaged {kind} file ({error}); fetch it again") from error


def _compression(disk: BinaryIO, suffix: str) -> str | None:
    head = disk.peek(HEAD_BYTES)[:HEAD_BYTES]
    for other, (kind, first, _) in _DECOMPRESSORS.items():
        is_kind = head.startswith(first) and (kind != "bzip2" or head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"))
        if is_kind:
            return other
    return suffix if suffix in _DECOMPRESSORS else None


def _refuse_other_kinds(name: str, content: BinaryIO, utf_8: bool) -> None:
    if problem := other_than_text(content.peek(HEAD_BYTES)[:HEAD_BYTES], utf_8):
        raise InputError(f"{name}: {problem}")
