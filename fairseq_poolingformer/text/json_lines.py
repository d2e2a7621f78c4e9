"""One JSON object a line, and words for lines that hold something else."""

import json


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
