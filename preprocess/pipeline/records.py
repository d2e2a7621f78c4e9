"""Raw records, the examples and rejects that they become, and readers of files.

Files may be compressed by gzip, bzip2, xz or zstd, told by their first bytes, or else by their names.
"""

import bz2
import contextlib
import functools
import gzip
import importlib
import io
import json
import lzma
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fairseq_poolingformer.extras import how_to_install
from fairseq_poolingformer.options import matching
from fairseq_poolingformer.text.data_folder import digest_of
from fairseq_poolingformer.text.json_file import HEAD_BYTES, other_than_text

MAX_LINE_BYTES = 64 * 2**20
TOO_LONG = "too long: more bytes than --max-line-bytes or --max-document-bytes allows"
_BLOCK_BYTES = 2**17
_XZ_MEMORY = 2**29  # bytes; xz -9 needs 65 MiB
_ZSTD_BYTES = 2**9  # of input at a time: zstandard bounds no output, and they become 16 MiB at most


class InputError(ValueError):
    """An error for people: what is wrong, where, what to do. Command lines print it without a traceback."""


def needs(path: object, kind: str, package: str, otherwise: str) -> InputError:
    """The error for a file that only a package which is not installed can read."""
    return InputError(f"{path}: is {kind}, which needs the package {package}: {how_to_install('data')}; or {otherwise}")


@dataclass(frozen=True)
class Record:
    """One raw document, not parsed yet."""

    file: str  # where it is, for messages
    line: int  # line number in the file, from 1
    data: bytes | None  # its bytes, or None where there are none to use
    progress: int = 0  # bytes of input, as on disk, read since the record before
    problem: str = TOO_LONG  # why there are none: as a rule the record is longer than the reader's bound


@dataclass(frozen=True)
class Example:
    """A document ready to be encoded."""

    id: str
    texts: tuple[str, ...]  # one text for each side of the data, such as source and target


@dataclass(frozen=True)
class Skipped:
    """A good record that is no document of the corpus, such as a redirect; the report counts each ``kind``."""

    kind: str


@dataclass(frozen=True)
class Reject:
    """Why a record cannot be used: a general reason, then after a colon the details of this record."""

    reason: str


Parse = Callable[[Record], Example | Reject | Skipped]


def parsed(record: Record, parse: Parse) -> Example | Reject | Skipped:
    """Make an example of a record, which may have no data."""
    return Reject(record.problem) if record.data is None else parse(record)


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
    head, suffix = disk.peek(HEAD_BYTES)[:HEAD_BYTES], Path(name).suffix
    for other, (kind, first, _) in _DECOMPRESSORS.items():
        if head.startswith(first) and (kind != "bzip2" or head[4:10] in (b"1AY&SY", b"\x17rE8P\x90")):
            suffix = other
    if suffix not in _DECOMPRESSORS:
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


def _refuse_other_kinds(name: str, content: BinaryIO, utf_8: bool) -> None:
    if problem := other_than_text(content.peek(HEAD_BYTES)[:HEAD_BYTES], utf_8):
        raise InputError(f"{name}: {problem}")


def expand(patterns: Sequence[str]) -> list[Path]:
    """List the files of paths and glob patterns, in the order of the arguments, sorted within a pattern, each once."""
    files: dict[Path, Path] = {}
    for pattern in patterns:
        names = [path for path in matching(pattern) if Path(path).is_file()]
        if not names:
            is_folder = Path(pattern).is_dir()
            raise InputError(f"{pattern}: {'is a folder; name its files' if is_folder else 'no such file'}")
        for path in map(Path, names):
            files.setdefault(path.absolute(), path)
    return list(files.values())


def read_files(
    paths: Sequence[Path], find: Callable[[BinaryIO, str], Iterator[tuple[int, bytes | None]]], numbered: str = ""
) -> Iterator[Record]:
    """Read the records of plain or compressed files."""
    for path in paths:
        with open_compressed(path) as (content, disk):
            yield from records_of(find(content, str(path)), str(path), disk, numbered)


def records_of(
    lines: Iterable[tuple[int, bytes | str | None]], file: str, disk: BinaryIO, numbered: str = ""
) -> Iterator[Record]:
    """Make records of lines and data, or why there is none, for :func:`read_files`; the disk's position is progress."""
    position = 0
    for number, (line, data) in enumerate(lines, 1):
        name = f"{file}, {numbered} {number}" if numbered else file
        progress, position = disk.tell() - position, disk.tell()
        if isinstance(data, str):
            yield Record(name, line, None, progress, data)
        else:
            yield Record(name, line, data, progress)


def read_lines(paths: Sequence[Path], max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[Record]:
    """Read non-blank lines of plain or compressed files as records; one over ``max_line_bytes`` is without data."""
    return read_files(paths, functools.partial(lines, max_line_bytes=max_line_bytes))


def lines(content: BinaryIO, name: str, max_line_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the number and the bytes of each line that is not blank, for :func:`read_lines`."""
    number = 0
    while line := content.readline(max_line_bytes + 1):
        number += 1
        too_long = len(line) > max_line_bytes and not line.endswith(b"\n")
        while too_long and line and not line.endswith(b"\n"):
            line = content.readline(max_line_bytes)
        if too_long or not line.isspace():
            yield number, None if too_long else line.rstrip(b"\r\n")


def decoded(line: bytes, number: int, problem: str = "") -> tuple[str, str]:
    """A line as text, and why it cannot be used, unless there is a problem already."""
    try:
        return line.decode("utf-8"), problem
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: byte {error.start} of line {number}, {error.reason}"
        reason += "; convert it, such as text of Windows with iconv -f CP1252 -t UTF-8"
        return line.decode("utf-8", "replace"), problem or reason


def describe_file(path: Path) -> dict[str, object]:
    """Identify an input file, whatever folder it is in: name, size, digest."""
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": digest_of(path)}


def describe_files(files: Mapping[str, Sequence[Path]]) -> dict[str, list[dict[str, object]]]:
    """Identify the input files of each split."""
    return {split: [describe_file(path) for path in paths] for split, paths in files.items()}


def pack(name: str, *texts: str) -> Record:
    """Make a record of an example that a program made, such as a document about the Python installation."""
    data = json.dumps([name, *texts]).encode()
    return Record(name, 1, data, len(data))


def unpack(record: Record) -> Example:
    """Make the example of a record of :func:`pack`."""
    name, *texts = json.loads(record.data)
    return Example(name, tuple(texts))
