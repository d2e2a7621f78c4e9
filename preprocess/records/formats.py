"""Which format a file of text has, told by its content, and by its name where the content leaves a choice."""

import enum
import json
from pathlib import Path
from typing import BinaryIO

from fairseq_poolingformer.text.input_files import opened, suffix_of

from ..pipeline import json_stream
from .keys import OTHERWISE

_HEAD_LINES = 5
_OPEN = (b"{", b"[", b",", b":")  # ends of a line that the next one continues


class Format(enum.Enum):
    """The formats of single files."""

    LINES = "JSON lines"
    ARRAY = "a JSON array"
    LIST = "a JSON object with a list of records"
    CSV = "CSV"
    TSV = "TSV"


_BY_NAME = {".jsonl": Format.LINES, ".ndjson": Format.LINES, ".csv": Format.CSV, ".tsv": Format.TSV, ".tab": Format.TSV}


def format_of(path: Path, max_bytes: int) -> tuple[Format, str]:
    """Find the format of a file that is text, and the key of the list of records where it is an object."""
    if (known := _BY_NAME.get(suffix_of(path.name))) is not None:
        return known, ""
    with opened(path) as content:
        first = _next_line(content, max_bytes).removeprefix(b"\xef\xbb\xbf").lstrip()
        second = _next_line(content, max_bytes) if len(first) <= max_bytes else b""
    if first.startswith(b"["):
        return Format.ARRAY, ""
    if not first.startswith(b"{"):
        return _of_text(path, max_bytes), ""
    if second and (_is_json(first) or (second.startswith(b"{") and not first.rstrip().endswith(_OPEN))):
        return Format.LINES, ""
    with opened(path) as content:
        lists = json_stream.lists_of_objects(content, max_bytes)
    if len(lists) == 1:
        return Format.LIST, lists[0]
    if not lists and not second:
        return Format.LINES, ""
    named = f"several lists of records, {', '.join(lists)}" if lists else "no list of records, and fills several lines"
    raise ValueError(f"{path}: one JSON object, which has {named}; {OTHERWISE}")


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


def _of_text(path: Path, max_bytes: int) -> Format:
    with opened(path) as content:
        lines = [_next_line(content, max_bytes) for _ in range(_HEAD_LINES)]
    if not any(lines) or any(line.lstrip().startswith(b"{") for line in lines):
        return Format.LINES
    if b"\t" in lines[0]:
        return Format.TSV
    raise ValueError(
        f"{path}: neither JSON nor a table; tables end in .csv or .tsv, line pairs in .src and .tgt; texts need a "
        f"folder for each label, or A.txt with A.summary.txt; {OTHERWISE}"
    )
