"""``corpus.json`` as anyone may have written it: its size, its depth and the types of what is read here come first."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_poolingformer.text.recorded_folder import LARGEST_FILE

_SPLIT = re.compile(r"[\w-]+(\.[\w-]+)*")  # becomes the beginning of files' names
_OUTSIDE = ("", ".", "..")


def read_corpus_file(path: Path) -> dict[str, Any]:
    """Read the file.

    Args:
        path: a regular file.

    Raises:
        ValueError: it is too large, not JSON, or an entry is of another type than preprocessing writes.
        RecursionError: it is nested too deeply.
    """
    if (size := path.stat().st_size) > LARGEST_FILE:
        raise ValueError(f"{size:,} bytes, more than {LARGEST_FILE:,}")
    corpus = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(corpus, dict):
        raise ValueError("not an object")
    for key, is_good in _ENTRIES.items():
        if key in corpus and not is_good(corpus[key]):
            raise ValueError(f"{key!r} is not what preprocessing writes")
    return corpus


def _object_of(is_name: Callable[[str], Any], is_value: Callable[[Any], Any]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(is_name(key) and is_value(value[key]) for key in value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_description(value: Any) -> bool:
    """Whether a value is what :func:`fairseq_poolingformer.text.digests.describe` returns."""
    return (
        isinstance(value, dict)
        and _is_count(value.get("bytes"))
        and isinstance(value.get("sha256"), str)
        and isinstance(value.get("sample_sha256", ""), str)
    )


def _is_inside(name: str) -> bool:
    """Whether a path stays in the folder that it is relative to, and can be printed."""
    return name.isprintable() and not any(part in _OUTSIDE for part in name.split("/"))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


_ENTRIES: dict[str, Callable[[Any], Any]] = {
    "files": _object_of(_is_inside, _is_description),
    "examples": _object_of(_SPLIT.fullmatch, _is_count),
    "rejects": _object_of(_SPLIT.fullmatch, _is_count),
    "labels": _is_list_of_texts,
    "table": _is_list_of_texts,
    "shared": _is_list_of_texts,
    "kind": _is_text,
    "corpus": _is_text,
    "corpus_sha256": _is_text,
}
