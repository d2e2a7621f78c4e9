"""Text and JSON files that are read whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fairseq_poolingformer.text.input_files import opened
from fairseq_poolingformer.text.json_values import type_name


def read_text_file(path: Path) -> str:
    """Read a text file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 (byte {error.start}, {error.reason})") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys come once; JSON readers keep the last value of one that comes twice."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} comes a second time; leave one")
    return fields


def read_json_file(path: Path, kind: type = dict, unique: bool = False) -> Any:
    """Read a file, compressed or not, with one JSON value of a kind; ``unique`` refuses a key that comes twice."""
    path = Path(path)
    with opened(path) as file:
        content = file.read()
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


def corpus_of(folder: Path) -> dict[str, Any] | None:
    """Description of a finished data folder (``corpus.json``); None where it cannot be read."""
    path = Path(folder, "corpus.json")
    try:
        return read_json_file(path) if path.is_file() else None  # a pipe would never end
    except (OSError, ValueError):
        return None
