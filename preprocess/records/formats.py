"""Which format a file has, told by its content, and by its name where the content leaves a choice; how it is read."""

import enum
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from typing import BinaryIO

from ..pipeline import json_stream
from ..pipeline.records import MAX_LINE_BYTES, InputError, suffix_of

Open = Callable[[], AbstractContextManager[tuple[BinaryIO, BinaryIO]]]
_HEAD_LINES = 5


@dataclass(frozen=True)
class Reading:
    """Reading options that a file does not hold."""

    max_bytes: int = MAX_LINE_BYTES  # records of more bytes are rejected without being loaded
    # names of the columns of a table without a header; empty where the first row has them
    columns: tuple[str, ...] = ()
    quotes: bool = True  # whether quotation marks around a field of a table belong to the table, not to the text
    records_key: str = "data"  # the key of the list of records where a file is one JSON object

    def settings(self) -> dict[str, object]:
        """The attributes that are not the defaults, as JSON values; without ``max_bytes``."""
        usual = {field.name: field.default for field in fields(self)}
        found = asdict(self).items()
        return {name: value for name, value in found if name != "max_bytes" and value != usual[name]}


USUAL = Reading()


class Format(enum.Enum):
    """The formats of single files."""

    LINES = "JSON lines"
    ARRAY = "a JSON array"
    LIST = "a JSON object with a list of records"
    MEMBERS = "a JSON object of records by id"
    OBJECTS = "JSON objects"
    CSV = "CSV"
    TSV = "TSV"


_BY_NAME = {".csv": Format.CSV, ".tsv": Format.TSV, ".tab": Format.TSV}
_LINES_BY_NAME = (".jsonl", ".ndjson")


def format_of(name: str, open_content: Open, reading: Reading) -> Format:
    """Find the format of a file that is text."""
    suffix = suffix_of(name)
    if suffix in _BY_NAME:
        return _BY_NAME[suffix]
    with open_content() as (content, _):
        first = _next_line(content, reading.max_bytes).removeprefix(b"\xef\xbb\xbf").lstrip()
        second = _next_line(content, reading.max_bytes) if len(first) <= reading.max_bytes else b""
    if first.startswith(b"["):
        return Format.LINES if second.lstrip().startswith(b"{") and _is_json(first) else Format.ARRAY
    if not first.startswith(b"{"):
        return _of_text(name, suffix, open_content, reading)
    if suffix in _LINES_BY_NAME or second.startswith(b"{") or (second and _is_json(first)):
        return Format.LINES
    kinds = set()
    with open_content() as (content, _):
        for key, kind in json_stream.openings(content, reading.max_bytes):
            if key == reading.records_key and kind == b"[":
                return Format.LIST
            kinds.add(kind)
    if kinds == {b"{"}:
        return Format.MEMBERS
    return Format.OBJECTS if second else Format.LINES


def _next_line(content: BinaryIO, max_bytes: int) -> bytes:
    """The next line that is not blank, or its beginning."""
    while line := content.readline(max_bytes + 1):
        if line.strip():
            return line
    return b""


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _of_text(name: str, suffix: str, open_content: Open, reading: Reading) -> Format:
    with open_content() as (content, _):
        lines = [_next_line(content, reading.max_bytes) for _ in range(_HEAD_LINES)]
    if suffix in _LINES_BY_NAME or not any(lines) or any(line.lstrip().startswith(b"{") for line in lines):
        return Format.LINES
    if b"\t" in lines[0]:
        return Format.TSV
    raise InputError(
        f"{name}: neither JSON nor a table; tables end in .csv or .tsv, line pairs in .src and .tgt; texts need a "
        "folder for each label, or A.txt with A.summary.txt"
    )
