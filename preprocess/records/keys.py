"""Key paths: where in a record a value is.

``a.b`` is ``b`` in the object ``a``, which may be JSON inside a string; ``a.0`` the first of the list ``a``, ``a.-1``
the last; ``a.*.b`` every ``b`` inside of ``a``, however deep, in order, and ``a.*`` everything; ``a.*.b:c`` the text
``B: C`` of every object that has both, as of who speaks; ``a+b`` both, one after the other. A key that is there as it
is written comes before all that.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence

from fairseq_poolingformer.text.json_values import BadLine, type_name

_DEEPER = "*"
_MOST, _LONGEST = 20, 40  # keys in messages, and characters of each
_WORDS = 3  # of a key; those with more are likely to be text


def first(fields: dict, keys: Sequence[str], what: str, option: str) -> tuple[str, object]:
    """The first of several keys under which a record has more than null, and its value."""
    for key in keys:
        if (value := under(fields, key)) is None:
            continue
        if isinstance(value, str) and isinstance(inner := _parsed(value), dict | list):
            inside = f"{key}.*" if isinstance(inner, list) else key
            objects = [value for value in (inner if isinstance(inner, list) else [inner]) if isinstance(value, dict)]
            inside += f".{next(iter(objects[0]))}" if objects and objects[0] else ""
            raise BadLine(
                f"JSON inside a string: {key} holds {type_name(inner)} as text, not the {what} itself; "
                f"name what is inside, such as {option} {inside}"
            )
        _refuse_deeper(fields, key, option)
        return key, value
    advice = f"name one with {option}"
    values = ((key, value) for key, value in fields.items() if isinstance(value, list))
    if lists := [key for key, value in values if any(isinstance(item, dict) for item in value)]:
        advice += f"; records inside of lists with --each: {names_of(dict.fromkeys(lists))}"
    if any(len(key.split()) > _WORDS for key in fields):
        advice += "; the columns of a table without a header with --columns"
    raise BadLine(f"no {what}: the line lacks {' and '.join(keys)}; its keys are {names_of(fields)} ({advice})")


def names_of(fields: dict) -> str:
    """The keys of a record, for messages: those of a table whose header is missing may be whole documents."""
    shown = [key if len(key) <= _LONGEST else f"{key[:_LONGEST]}…" for key in itertools.islice(fields, _MOST)]
    return ", ".join([*shown, "…"] if len(fields) > _MOST else shown) or "none"


def under(fields: dict, key: str) -> object:
    """Value of a record under a key path; None for nothing."""
    if key in fields:
        return fields[key]
    if "+" in key:
        values = [under(fields, part) for part in key.split("+")]
        return None if None in values else _flat(values)
    value: object = fields
    names = key.split(".")
    for number, name in enumerate(names):
        value = _parsed(value) if isinstance(value, str) else value
        if name == _DEEPER:
            return _flat(_collect(value, names[number + 1 :])) or None
        if isinstance(value, list) and name.removeprefix("-").isdecimal() and -len(value) <= int(name) < len(value):
            value = value[int(name)]
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def _collect(value: object, names: Sequence[str]) -> Iterator[object]:
    """The values under names in an object or a list and everything inside it, in the order of the record."""
    if isinstance(value, dict):
        who, _, what = ".".join(names).partition(":")
        if what and {who, what} <= value.keys() and f"{who}:{what}" not in value:
            yield f"{value[who]}: {value[what]}" if all(isinstance(value[key], str) for key in (who, what)) else value
            return
        for key, inner in value.items():
            if key == ".".join(names):
                yield inner
            elif len(names) > 1 and key == names[0]:
                for item in inner if isinstance(inner, list) else [inner]:
                    yield under(item, ".".join(names[1:])) if isinstance(item, dict) else None
            else:
                yield from _collect(inner, names)
    elif isinstance(value, list):
        for inner in value:
            yield from _collect(inner, names)
    elif not names:
        yield value


def _objects(value: object) -> Iterator[dict]:
    """The objects in a value, however deep."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inner)


def _flat(values: Iterable[object]) -> list[object]:
    return [item for value in values if value is not None for item in (value if isinstance(value, list) else [value])]


def _refuse_deeper(fields: dict, key: str, option: str) -> None:
    """Refuse a key of an object that has objects of the very same keys inside it, as a section has sections."""
    place, _, name = key.rpartition(".")
    around = under(fields, place) if place and key not in fields else None
    if not isinstance(around, dict) or name == _DEEPER:
        return
    if deeper := sum(inner.keys() == around.keys() for inner in _objects(list(around.values()))):
        raise BadLine(
            f"nested sections: {key} leaves out the {name} of {deeper} sections inside {place}; "
            f"{option} {place}.{_DEEPER}.{name} reads all of them in order"
        )


def _parsed(text: str) -> object:
    """The value that a text holds as JSON; None where it holds none."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def parsed_object(data: bytes | None) -> dict | None:
    """The object that a record's data holds; None where it holds none."""
    if data is None:
        return None
    try:
        fields = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
