"""Keys of records, and the texts under them.

A key is a name, or a path: ``a.b`` is ``b`` in the object ``a``; a key that is there as it is written comes first. A
text is a string, or a list of strings and of sections: objects with a heading and text of their own.
"""

import itertools
import json
from collections.abc import Sequence

from fairseq_poolingformer.text.json_values import BadLine, type_name

OTHERWISE = (
    'write JSON lines of another shape first, such as datasets.load_dataset(…, split="train").to_json("train.jsonl")'
)
HEADINGS = ("heading", "title", "section", "section_title", "section_name")
BODIES = ("text", "paragraphs")
_MOST, _LONGEST = 20, 40  # keys in messages, and characters of each


def first(fields: dict, keys: Sequence[str], what: str, option: str) -> tuple[str, object]:
    """The first of several keys under which a record has more than null, and its value."""
    for key in keys:
        if (value := under(fields, key)) is not None:
            place, _, _ = key.rpartition(".")
            around = under(fields, place) if place and key not in fields else None
            if isinstance(around, dict):
                _refuse_nested(place, around)
            return key, value
    raise BadLine(
        f"no {what}: the line lacks {' and '.join(keys)}; its keys are {names_of(fields)} (name one with {option})"
    )


def under(fields: dict, key: str) -> object:
    """The value of a record under a key; None for nothing."""
    if key in fields:
        return fields[key]
    value: object = fields
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def texts_of(key: str, value: object) -> list[str]:
    """The texts of the value under a key, in order; a heading comes before the sections that repeat it."""
    if isinstance(value, str):
        _refuse_json(key, value)
        return [value]
    if isinstance(value, dict):
        raise BadLine(f"wrong type: {key} is an object, not text; its keys are {names_of(value)} ({key}.… names one)")
    if not isinstance(value, list):
        raise BadLine(f"wrong type: {key} is {type_name(value)}, not a string or a list")
    texts, last = [], None
    for number, item in enumerate(value):
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, dict):
            heading, paragraphs = _section(f"{key}[{number}]", item)
            texts += [heading] * (bool(heading) and heading != last) + paragraphs
            last = heading
        else:
            raise BadLine(f"wrong type: {key}[{number}] is {type_name(item)}, not a string or a section")
    return texts


def _section(place: str, section: dict) -> tuple[str, list[str]]:
    """The heading of a section, "" for none, and its paragraphs."""
    name = next((name for name in BODIES if section.get(name) is not None), None)
    if name is None:
        raise BadLine(f"no text: {place} lacks {' and '.join(BODIES)}; its keys are {names_of(section)} ({OTHERWISE})")
    paragraphs = [section[name]] if isinstance(section[name], str) else section[name]
    if not isinstance(paragraphs, list) or not all(isinstance(text, str) for text in paragraphs):
        raise BadLine(f"wrong type: {place}.{name} is neither a string nor a list of strings ({OTHERWISE})")
    _refuse_nested(place, section)
    headings = (section[key] for key in HEADINGS if isinstance(section.get(key), str))
    return next(headings, "").strip(), paragraphs


def _refuse_nested(place: str, section: dict) -> None:
    """Refuse an object with objects of its own keys inside, as a section has sections, whose texts would be lost."""
    for key, value in section.items():
        if isinstance(value, list) and any(isinstance(item, dict) and section.keys() <= item.keys() for item in value):
            raise BadLine(f"nested sections: {place}.{key} has sections of its own ({OTHERWISE})")


def names_of(fields: dict) -> str:
    """The keys of a record, for messages: those of a table whose header is missing may be whole documents."""
    shown = [key if len(key) <= _LONGEST else f"{key[:_LONGEST]}…" for key in itertools.islice(fields, _MOST)]
    return ", ".join([*shown, "…"] if len(fields) > _MOST else shown) or "none"


def _refuse_json(key: str, text: str) -> None:
    """Refuse a text that is a list or an object written as JSON: nobody means to learn its brackets."""
    if not text.lstrip().startswith(("{", "[")):
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict | list):
        raise BadLine(f"JSON inside a string: {key} holds {type_name(value)} as text ({OTHERWISE})")
