"""Records of every format that people have, one after the other, each an object of JSON with its place."""

import json
from collections.abc import Iterator, Sequence
from functools import partial

from ..pipeline import json_stream, records
from ..pipeline.records import Record
from . import arrow, keys, tables, texts
from .formats import USUAL, Format, Reading, format_of
from .sources import Source


def read(sources: Sequence[Source], reading: Reading = USUAL) -> Iterator[Record]:
    """Read the records of sources.

    A record's data is an object of JSON, unchecked where the file is JSON: it is the caller who rejects what is none.
    """
    for source in sources:
        yield from _records(source, reading)


def _records(source: Source, reading: Reading) -> Iterator[Record]:
    if source.rows is not None:
        return arrow.hub_rows(source.rows, source.name, reading.max_bytes)
    if source.entries:
        return texts.together(source.entries, reading.max_bytes)
    if source.other:
        return texts.line_pairs(source.path, source.other, reading.max_bytes)
    binary = arrow.format_of(source.path)
    return binary(source.path, reading.max_bytes) if binary else _text(source, reading)


def _text(source: Source, reading: Reading) -> Iterator[Record]:
    kind = Format.LIST if source.key else format_of(source.name, source.open, reading)
    size, key = reading.max_bytes, source.key or reading.records_key
    find, numbered = {
        Format.LINES: (partial(records.lines, max_line_bytes=size), ""),
        Format.ARRAY: (partial(json_stream.elements, key=None, max_bytes=size), "element"),
        Format.LIST: (partial(json_stream.elements, key=key, max_bytes=size), "element"),
        Format.MEMBERS: (partial(json_stream.members, max_bytes=size), "member"),
        Format.OBJECTS: (partial(json_stream.objects, max_bytes=size), ""),
        Format.CSV: (partial(tables.rows, reading=reading), ""),
        Format.TSV: (partial(tables.rows, reading=reading, delimiter="\t"), ""),
    }[kind]
    with source.open() as (content, disk):
        yield from records.records_of(find(content, source.name), source.name, disk, numbered)


def each(found: Iterator[Record], lists: Sequence[str]) -> Iterator[Record]:
    """Make a record of each object in the lists under some keys, with the other fields of the record around it."""
    for record in found:
        fields = keys.parsed_object(record.data)
        if not isinstance(fields, dict):
            yield record
            continue
        items = [item for key in lists for item in _list(keys.under(fields, key))]
        if not items:
            problem = f"no list of objects: {' and '.join(lists)} (--each); the keys are {keys.names_of(fields)}"
            yield Record(record.file, record.line, None, record.progress, problem)
        rest = {key: value for key, value in fields.items() if key not in lists}
        for number, item in enumerate(items, 1):
            name = {"id": f"{fields['id']}-{number}"} if isinstance(fields.get("id"), str | int) else {}
            inner = item if isinstance(item, dict) else {"item": item}
            data = json.dumps({**rest, **name, **inner}).encode()
            yield Record(f"{record.file}, {number}", record.line, data, record.progress if number == 1 else 0)


def _list(value: object) -> list:
    return value if isinstance(value, list) else [] if value is None else [value]
