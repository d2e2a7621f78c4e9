"""Raw records, the examples and rejects that they become, and readers of files."""

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fairseq_poolingformer.options import matching
from fairseq_poolingformer.text.data_folder import digest_of
from fairseq_poolingformer.text.input_files import TOO_LONG, decompressed

MAX_LINE_BYTES = 64 * 2**20


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


def expand(patterns: Sequence[str]) -> list[Path]:
    """List the files of paths and glob patterns, in the order of the arguments, sorted within a pattern, each once."""
    files: dict[Path, Path] = {}
    for pattern in patterns:
        names = [path for path in matching(pattern) if Path(path).is_file()]
        if not names:
            is_folder = Path(pattern).is_dir()
            raise ValueError(f"{pattern}: {'is a folder; name its files' if is_folder else 'no such file'}")
        for path in map(Path, names):
            files.setdefault(path.absolute(), path)
    return list(files.values())


def read_files(
    paths: Sequence[Path], find: Callable[[BinaryIO, str], Iterator[tuple[int, bytes | None]]], numbered: str = ""
) -> Iterator[Record]:
    """Read the records of plain or compressed files."""
    for path in paths:
        name = str(path)
        with open(path, "rb") as disk, decompressed(disk, name) as content:
            yield from records_of(find(content, name), name, disk, numbered)


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
