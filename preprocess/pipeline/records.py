"""Raw records, the examples and rejects that they become, and readers of files."""

import bz2
import contextlib
import functools
import glob
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from fairseq_poolingformer.text.digests import digest_of
from fairseq_poolingformer.text.json_file import HEAD_BYTES, other_than_text

MAX_LINE_BYTES = 64 * 2**20
TOO_LONG = "too long: more bytes than --max-line-bytes or --max-document-bytes allows"

_BLOCK_BYTES = 2**17


class InputError(ValueError):
    """An error for people: what is wrong, where, what to do. Command lines print it without a traceback."""


@dataclass(frozen=True)
class Record:
    """One raw document, not parsed yet.

    Attributes:
        file: where it is, for messages.
        line: line number in the file, from 1.
        data: its bytes, or None where it is longer than the reader's bound.
        progress: bytes of input, as on disk, read since the record before.
    """

    file: str
    line: int
    data: bytes | None
    progress: int = 0


@dataclass(frozen=True)
class Example:
    """A document ready to be encoded.

    Attributes:
        id: its name.
        texts: one text for each side of the data, e.g. source and target.
        lost: what may have had text that the document lacks, and how often; the report adds it up.
    """

    id: str
    texts: tuple[str, ...]
    lost: Mapping[str, int] = field(default_factory=dict, kw_only=True)


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
    return Reject(TOO_LONG) if record.data is None else parse(record)


def expand(patterns: Sequence[str]) -> list[Path]:
    """List the files of paths and glob patterns, in the order of the arguments and sorted within a pattern.

    A file that several of them name is listed once, at its first place.

    Raises:
        InputError: an argument names no file.
    """
    files: dict[Path, Path] = {}
    for pattern in patterns:
        found = [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern, recursive=True))
        found = [path for path in found if Path(path).is_file()]
        if not found:
            raise InputError(f"{pattern}: no such file")
        for path in map(Path, found):
            files.setdefault(path.absolute(), path)
    return list(files.values())


def read_files(
    paths: Sequence[Path], find: Callable[[BinaryIO, str], Iterator[tuple[int, bytes | None]]], numbered: str = ""
) -> Iterator[Record]:
    """Read the records of plain or compressed files.

    Args:
        paths: the files.
        find: yields the line and the data of each record, given the content of a file and its name.
        numbered: what a record is called where its ``file`` is to have its number, from 1, too.

    Raises:
        InputError: a compressed file is damaged, or the content is not text; and whatever ``find`` raises.
    """
    for path in paths:
        with open_compressed(path) as (content, disk):
            position = 0
            for number, (line, data) in enumerate(find(content, str(path)), 1):
                name = f"{path}, {numbered} {number}" if numbered else str(path)
                yield Record(name, line, data, disk.tell() - position)
                position = disk.tell()


def read_lines(paths: Sequence[Path], max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[Record]:
    """Read the lines of plain or compressed files as records, without blank lines.

    A line of more than ``max_line_bytes`` becomes a record without data.

    Raises:
        InputError: a compressed file is damaged.
    """
    return read_files(paths, functools.partial(_lines, max_line_bytes=max_line_bytes))


def _lines(content: BinaryIO, name: str, max_line_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    number = 0
    while line := content.readline(max_line_bytes + 1):
        number += 1
        too_long = len(line) > max_line_bytes and not line.endswith(b"\n")
        while too_long and line and not line.endswith(b"\n"):
            line = content.readline(max_line_bytes)
        if too_long or not line.isspace():
            yield number, None if too_long else line.rstrip(b"\r\n")


class _Bzip2(io.RawIOBase):
    """bzip2 streams, one after the other. Python's own reader ends in silence at a stream that it cannot read."""

    def __init__(self, disk: BinaryIO) -> None:
        self._disk, self._stream = disk, bz2.BZ2Decompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        data, block = b"", b""
        while not data:
            if self._stream.eof:
                block = self._stream.unused_data or self._disk.read(_BLOCK_BYTES)
                if not block:
                    return 0
                self._stream = bz2.BZ2Decompressor()
            elif self._stream.needs_input and not (block := self._disk.read(_BLOCK_BYTES)):
                raise EOFError("its end is missing")
            data = self._stream.decompress(block, len(buffer))
            block = b""
        buffer[: len(data)] = data
        return len(data)


def _open_bzip2(disk: BinaryIO) -> BinaryIO:
    return io.BufferedReader(_Bzip2(disk), _BLOCK_BYTES)


_DECOMPRESSORS = {".gz": ("gzip", gzip.open), ".bz2": ("bzip2", _open_bzip2)}
_OWN_KIND = {".gz": b"\x1f\x8b", ".bz2": b"BZh"}


@contextlib.contextmanager
def open_compressed(path: Path, utf_8: bool = True) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a plain, ``.gz`` or ``.bz2`` file: its content, and the file on disk, whose position tells progress.

    Args:
        path: the file.
        utf_8: whether its content must be UTF-8.

    Raises:
        InputError: a compressed file is damaged, or the content is not text.
    """
    with open(path, "rb") as disk:
        if not disk.peek(2).startswith(_OWN_KIND.get(path.suffix, b"\0no kind")):
            _refuse_other_kinds(path, disk, utf_8)
        if path.suffix not in _DECOMPRESSORS:
            yield disk, disk
            return
        kind, decompress = _DECOMPRESSORS[path.suffix]
        try:
            with decompress(disk) as content:
                _refuse_other_kinds(path, content, utf_8)
                yield content, disk
        except (EOFError, OSError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the disk, not of the decompressor
            raise InputError(f"{path}: damaged {kind} file ({error}); fetch it again") from error


def _refuse_other_kinds(path: Path, content: BinaryIO, utf_8: bool) -> None:
    if problem := other_than_text(content.peek(HEAD_BYTES)[:HEAD_BYTES], utf_8):
        raise InputError(f"{path}: {problem}")


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
