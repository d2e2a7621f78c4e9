"""Text and JSON files that are read whole."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Any

from fairseq_poolingformer.text.file_kinds import HEAD_BYTES, other_than_text
from fairseq_poolingformer.text.json_lines import type_name

# an object whose first value is a string; a line of JSON with a label is another form
_OF_STRINGS = re.compile(r'\s*\{\s*(?!"(?:id|label|probability)"\s*:)"(?:[^"\\]|\\.)*"\s*:\s*"')


def is_object_of_strings(beginning: str) -> bool:
    """Whether a file that begins so holds one JSON object of strings."""
    return _OF_STRINGS.match(beginning) is not None


def read_text_file(path: Path) -> str:
    """Read a text file.

    Raises:
        ValueError: naming the file and the place, if it is not UTF-8.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 (byte {error.start}, {error.reason})") from None


def read_json_file(path: Path, kind: type = dict) -> Any:
    """Read a file that holds one JSON value.

    Args:
        path: the file, plain or ``.gz``.
        kind: dict for an object, list for a list.

    Raises:
        ValueError: naming the file and the place, if it is damaged or holds a value of another kind.
    """
    path = Path(path)
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            content = file.read()
        if problem := other_than_text(content[:HEAD_BYTES]):
            raise ValueError(f"{path}: {problem}")
        value = json.loads(content.decode("utf-8-sig"))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: damaged gzip file ({error})") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 (byte {error.start}, {error.reason})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not JSON ({error.msg}, column {error.colno})") from None
    except RecursionError:
        raise ValueError(f"{path}: objects or lists are nested too deeply") from None
    if not isinstance(value, kind):
        raise ValueError(f"{path}: must hold {type_name(kind())}, holds {type_name(value)}")
    return value
