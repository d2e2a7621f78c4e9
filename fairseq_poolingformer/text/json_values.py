"""One JSON object a line, and checked values of it; each error says what is there instead of what."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from typing import Any

YES_NO_ANSWERS = ("NONE", "YES", "NO")


class BadLine(ValueError):
    """Why a line cannot be used: a general reason, then after a colon the details of this line."""


def read_object(line: bytes) -> dict:
    """The object that a line holds."""
    try:
        fields = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadLine(f"not UTF-8: byte {error.start} of the line, {error.reason}") from error
    except RecursionError as error:
        raise BadLine("broken JSON: nested too deeply") from error
    except json.JSONDecodeError as error:
        raise BadLine(f"broken JSON: {error.msg}: character {error.pos + 1} of the line") from error
    except ValueError as error:
        raise BadLine(f"broken JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BadLine(f"wrong type: the line is {type_name(fields)}, not an object")
    return fields


def type_name(value: object) -> str:
    """JSON's name of a value's type, for people."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


@contextlib.contextmanager
def placed(*place: object) -> Iterator[None]:
    """Name a place, such as a file and a line, before the message of a ValueError of the block."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{', '.join(map(str, place))}: {error}") from None


def as_object(value: object, where: str) -> dict[str, Any]:
    """Return the value, which must be a JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a JSON object, is {_shown(value)}")
    return value


def list_of(record: dict[str, Any], key: str) -> list:
    """Return the list under a key."""
    if not isinstance(record.get(key), list):
        raise ValueError(_wrong(record, key, "a list"))
    return record[key]


def text_of(record: dict[str, Any], key: str) -> str:
    """Return the string under a key."""
    if not isinstance(record.get(key), str):
        raise ValueError(_wrong(record, key, "a string"))
    return record[key]


def integer_of(record: dict[str, Any], key: str, default: int | None = None) -> int:
    """Return the integer under a key, or the default where the key is missing."""
    value = record.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(_wrong(record, key, "an integer"))
    return value


def number_of(record: dict[str, Any], key: str) -> float:
    """Return the number under a key: a JSON number or a string of one, as the official reader of TyDi QA takes it."""
    value = record.get(key)
    if not isinstance(value, (int, float, str)) or isinstance(value, bool):
        raise ValueError(_wrong(record, key, "a number"))
    try:
        number = float(value)
    except ValueError:
        raise ValueError(_wrong(record, key, "a number")) from None
    except OverflowError:
        raise ValueError(_wrong(record, key, "a number that a float can hold")) from None
    if math.isnan(number):
        raise ValueError(_wrong(record, key, "a number"))
    return number


def example_id_of(record: dict[str, Any]) -> int | str:
    """Return the example's id; both corpora have integers, and a string stays a string."""
    value = record.get("example_id")
    if not isinstance(value, (int, str)) or isinstance(value, bool):
        raise ValueError(_wrong(record, "example_id", "an integer or a string"))
    return value


def yes_no_of(record: dict[str, Any], default: str | None = None) -> str:
    """Return ``"YES"``, ``"NO"`` or ``"NONE"``, however it is capitalized, or the default where the key is missing."""
    value = record.get("yes_no_answer", default)
    if not isinstance(value, str) or value.upper() not in YES_NO_ANSWERS:
        raise ValueError(_wrong(record, "yes_no_answer", "YES, NO or NONE"))
    return value.upper()


def _wrong(record: dict[str, Any], key: str, wanted: str) -> str:
    return f"{key!r} must be {wanted}, is {_shown(record[key]) if key in record else 'missing'}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
