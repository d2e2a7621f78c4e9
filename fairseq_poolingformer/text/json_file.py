"""Text and JSON files that are read whole, and files that are not text."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fairseq_poolingformer.text.json_values import type_name

HEAD_BYTES = 512  # enough for every kind

_TABLE = (
    "write its rows as JSON lines first, such as with pandas: read_{0}(FILE).to_json(OUT, orient='records', lines=True)"
)
_WORKBOOK = ("a workbook of Excel, or another document of Office", "save it as CSV in UTF-8")
_IN_WORKBOOKS = (b"[Content_Types].xml", b"docProps/", b"_rels/", b"xl/")  # the first member of their zip archive
_FIRST_BYTES = {
    b"\xd0\xcf\x11\xe0": _WORKBOOK,
    b"PAR1": ("a Parquet file", _TABLE.format("parquet")),
    b"ARROW1": ("an Arrow file", _TABLE.format("feather")),
    b"\x28\xb5\x2f\xfd": ("a zstd file", "decompress it with zstd -d"),
    b"PK\x03\x04": ("a zip archive", "unpack it with unzip, and name the files in it"),
    b"\xfd7zXZ\x00": ("an xz file", "decompress it with xz -d"),
    b"\x1f\x8b\x08": ("a gzip file", "give it a name that ends in .gz, or decompress it with gunzip"),
    b"BZh": ("a bzip2 file", "give it a name that ends in .bz2, or decompress it with bunzip2"),
    b"%PDF-": ("a PDF file", "extract its text first, such as with pdftotext"),
    b"version https://git-lfs": ("a Git LFS pointer", "fetch the file itself with git lfs pull"),
}


def read_text_file(path: Path) -> str:
    """Read a text file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 (byte {error.start}, {error.reason})") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys come once; JSON readers keep the last value of one that comes twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} comes a second time; leave one")
    return found


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """The content of a file, which may be compressed: ``.gz``, ``.bz2`` or ``.xz``."""
    kind: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(Path(path).suffix, open)
    try:
        with kind(path, "rb") as file:
            yield file
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk, not of the content
        raise ValueError(f"{path}: damaged {Path(path).suffix} file ({error})") from None


def read_json_file(path: Path, kind: type = dict, unique: bool = False) -> Any:
    """Read a file, compressed or not, with one JSON value of a kind; ``unique`` refuses a key that comes twice."""
    path = Path(path)
    with opened(path) as file:
        content = file.read()
    if problem := other_than_text(content[:HEAD_BYTES]):
        raise ValueError(f"{path}: {problem}")
    try:
        value = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_unique if unique else None)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 (byte {error.start}, {error.reason})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not JSON ({error.msg}, column {error.colno})") from None
    except RecursionError:
        raise ValueError(f"{path}: objects or lists are nested too deeply") from None
    except ValueError as error:  # a key twice, or a number of thousands of digits
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(value, kind):
        raise ValueError(f"{path}: must hold {type_name(kind())}, holds {type_name(value)}")
    return value


def other_than_text(head: bytes, utf_8: bool = True) -> str | None:
    """Return what a file is and what to do with it; None where it may be text."""
    for first, (kind, remedy) in _FIRST_BYTES.items():
        if head.startswith(first) and (first != b"BZh" or head[4:10] == b"1AY&SY"):
            if kind == "a zip archive" and head.startswith(_IN_WORKBOOKS, 30):
                kind, remedy = _WORKBOOK
            return f"is {kind}; {remedy}"
    if head[257:262] == b"ustar":
        return "is a tar archive; unpack it with tar -x, and name the files in it"
    is_utf_16 = head.startswith((b"\xff\xfe", b"\xfe\xff")) or (len(head) > 1 and head.count(0) * 3 > len(head))
    if utf_8 and is_utf_16:
        return "is text in UTF-16; convert it with iconv -f UTF-16 -t UTF-8"
    return None


def corpus_of(folder: Path) -> dict[str, Any] | None:
    """Description of a finished data folder (``corpus.json``); None where it cannot be read."""
    path = Path(folder, "corpus.json")
    try:
        return read_json_file(path) if path.is_file() else None  # a pipe would never end
    except (OSError, ValueError):
        return None
