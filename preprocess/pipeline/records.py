"""Raw records, the examples and rejects that they become, and readers of files."""

import functools
import glob
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from fairseq_poolingformer.text.digests import digest_of

from .compressed import open_compressed
from .errors import InputError

MAX_LINE_BYTES = 64 * 2**20
TOO_LONG = "too long: more bytes than --max-line-bytes or --max-document-bytes allows"


@dataclass(frozen=True)
class Record:
    """One raw document, not parsed yet.

    Attributes:
        file: where it is, for messages.
        line: line number in the file, from 1.
        data: its bytes, or None where there are none to use.
        progress: bytes of input, as on disk, read since the record before.
        problem: why there are none: as a rule the record is longer than the reader's bound.
    """

    file: str
    line: int
    data: bytes | None
    progress: int = 0
    problem: str = TOO_LONG


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
    return Reject(record.problem) if record.data is None else parse(record)


def expand(patterns: Sequence[str]) -> list[Path]:
    """List the files of paths and glob patterns, in the order of the arguments and sorted within a pattern.

    A file that several of them name is listed once, at its first place.
    """
    files: dict[Path, Path] = {}
    for pattern in patterns:
        found = [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern, recursive=True))
        found = [path for path in found if Path(path).is_file()]
        if not found:
            is_folder = Path(pattern).is_dir()
            raise InputError(f"{pattern}: {'is a folder; name its files' if is_folder else 'no such file'}")
        for path in map(Path, found):
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
    found: Iterable[tuple[int, bytes | str | None]], file: str, disk: BinaryIO, numbered: str = ""
) -> Iterator[Record]:
    """Make records of lines and data, or why there is none, for :func:`read_files`; the disk's position is progress."""
    position = 0
    for number, (line, data) in enumerate(found, 1):
        name = f"{file}, {numbered} {number}" if numbered else file
        progress, position = disk.tell() - position, disk.tell()
        if isinstance(data, str):
            yield Record(name, line, None, progress, data)
        else:
            yield Record(name, line, data, progress)


def read_lines(paths: Sequence[Path], max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[Record]:
    """Read the lines of plain or compressed files as records, without blank lines.

    A line of more than ``max_line_bytes`` becomes a record without data.
    """
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
