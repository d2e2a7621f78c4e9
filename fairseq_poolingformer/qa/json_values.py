"""Values out of parsed JSON, checked: each error says which key holds what instead of what."""

from __future__ import annotations

import math
from typing import Any

from fairseq_poolingformer.qa.spans import Span

YES_NO_ANSWERS = ("NONE", "YES", "NO")


def as_object(value: object, where: str) -> dict[str, Any]:
    """The value as a JSON object.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a JSON object, is {_shown(value)}")
    return value


def list_of(record: dict[str, Any], key: str) -> list:
    """The list under a key.

    Raises:
        ValueError: the key is missing or holds something else.
    """
    if not isinstance(record.get(key), list):
        raise ValueError(_wrong(record, key, "a list"))
    return record[key]


def text_of(record: dict[str, Any], key: str) -> str:
    """The string under a key.

    Raises:
        ValueError: the key is missing or holds something else.
    """
    if not isinstance(record.get(key), str):
        raise ValueError(_wrong(record, key, "a string"))
    return record[key]


def integer_of(record: dict[str, Any], key: str, default: int | None = None) -> int:
    """The integer under a key, or the default where the key is missing.

    Raises:
        ValueError: the key holds something else, or is missing and there is no default.
    """
    value = record.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(_wrong(record, key, "an integer"))
    return value


def number_of(record: dict[str, Any], key: str) -> float:
    """The number under a key; infinities are numbers.

    Raises:
        ValueError: the key is missing or holds something else.
    """
    value = record.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or math.isnan(value):
        raise ValueError(_wrong(record, key, "a number"))
    return float(value)


def example_id_of(record: dict[str, Any]) -> int | str:
    """The example's id, a number in both corpora.

    Raises:
        ValueError: it is missing or neither an integer nor a string.
    """
    value = record.get("example_id")
    if not isinstance(value, (int, str)) or isinstance(value, bool):
        raise ValueError(_wrong(record, "example_id", "an integer"))
    return value


def yes_no_of(record: dict[str, Any], default: str | None = None) -> str:
    """``"YES"``, ``"NO"`` or ``"NONE"``, however it is capitalized, or the default where the key is missing.

    Raises:
        ValueError: it is another value, or missing and there is no default.
    """
    value = record.get("yes_no_answer", default)
    if not isinstance(value, str) or value.upper() not in YES_NO_ANSWERS:
        raise ValueError(_wrong(record, "yes_no_answer", "YES, NO or NONE"))
    return value.upper()


def natural_questions_span(value: object, where: str) -> Span:
    """The span of Natural Questions' four keys; bytes or tokens that are missing are -1.

    Raises:
        ValueError: naming ``where``, if the offsets are no span.
    """
    record = as_object(value, where)
    keys = ("start_byte", "end_byte", "start_token", "end_token")
    offsets = [integer_of(record, key, -1) for key in keys]
    _check_offsets(where, *offsets[:2])
    _check_offsets(where, *offsets[2:])
    if any(0 <= start == end for start, end in (offsets[:2], offsets[2:])):
        raise ValueError(f"{where}: start and end are equal; ends are exclusive, so the span is empty")
    return Span(*offsets)


def tydiqa_span(value: object, where: str, start_key: str, end_key: str) -> Span:
    """The span of TyDi QA's two keys, which gold data and predictions name differently.

    Raises:
        ValueError: naming ``where``, if the offsets are no span; an empty one is, as in the official evaluation.
    """
    record = as_object(value, where)
    start, end = integer_of(record, start_key), integer_of(record, end_key)
    _check_offsets(where, start, end)
    return Span(start, end)


def _check_offsets(where: str, start: int, end: int) -> None:
    if (start < 0) != (end < 0):
        raise ValueError(f"{where}: start {start}, end {end}: no answer is -1 and -1")
    if start > end:
        raise ValueError(f"{where}: start {start} is after end {end}")


def _wrong(record: dict[str, Any], key: str, wanted: str) -> str:
    return f"{key!r} must be {wanted}, is {_shown(record[key]) if key in record else 'missing'}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
