"""The options of commands that read any records: where these are, how files are read, how they are divided."""

import argparse
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..pipeline import command, json_stream, records, splits
from ..pipeline.records import InputError, Record, describe_file
from ..pipeline.report import Table, with_lines
from ..pipeline.splits import SPLIT_OF, SPLITS, SplitRecords
from . import arrow, keys, tables, texts
from .formats import USUAL, Format, Reading, format_of
from .sources import Source, expand, splits_of

FORMATS = (
    "JSON lines, arrays or objects, CSV, TSV, Parquet, Arrow, line pairs .src and .tgt; plain, .gz, .bz2, .xz or "
    ".zst; folders of these, or saved by datasets; folders of texts: documents/A.txt with summaries/A.txt, A.txt with "
    "A.summary.txt, or LABEL/A.txt; names on the Hub"
)
KEYS = (
    "A KEY is a key or column, or a path: a.b is b in the object a, a.0 the first of the list a, a.-1 the last, a.*.b "
    "every b inside of a, a.* everything in it, a.*.b:c the text 'B: C' of every object in it, a+b both."
)


@dataclass(frozen=True)
class Data:
    """The splits that the options name."""

    splits: dict[str, SplitRecords]
    inputs: dict[str, list]  # identifies the input, as JSON values
    # what of the options decides the records, as JSON values; nothing where all are the defaults
    settings: dict[str, object]
    notes: Sequence[str] = ()  # lines for the report


def add_data(group: argparse._ArgumentGroup, *names: str) -> None:
    """Add ``--data``, perhaps by other names, too."""
    text = "a file, folder or Hub name; names of files or folders in it say train, valid or test"
    group.add_argument("--data", *names, metavar="DATA", help=text)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all but the options that name files and keys."""
    add_reading(parser)
    group = parser.add_argument_group("splits taken out of the training data")
    group.add_argument("--split-key", metavar="KEY", help="the key or column that says train, valid or test")
    text = "a file that says which ids are in which split: JSON of lists under train, valid and test, or lines ID SPLIT"
    group.add_argument("--splits", metavar="FILE", type=Path, help=text)
    splits.add_shares(group, valid=0.0, test=0.0)


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how files are read."""
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--columns", metavar="NAME", nargs="+", default=[], help="the columns of tables whose first row is not a header"
    )
    text = "quotation marks in tables are text: they neither enclose fields nor stand for one another"
    group.add_argument("--no-quotes", action="store_true", help=text)
    text = "of a file that is one JSON object: the key of its list of records (default: %(default)s)"
    group.add_argument("--records-key", metavar="KEY", default=Reading.records_key, help=text)
    text = "make an example of each object in the lists under these keys; fields around it, such as the text, stay"
    group.add_argument("--each", metavar="KEY", nargs="+", default=[], help=text)
    command.add_max_line_bytes(group)


def divides(args: argparse.Namespace) -> bool:
    """Whether the options take splits out of the training data."""
    return bool(args.split_key or args.splits or args.valid_share or args.test_share)


def reading_of(args: argparse.Namespace) -> Reading:
    """How the options have files read."""
    return Reading(args.max_line_bytes, tuple(args.columns), not args.no_quotes, args.records_key)


def find(
    args: argparse.Namespace,
    name_of: Callable[[Record], str],
    sources: dict[str, list[Source]] | None = None,
) -> Data:
    """Find the records that the options name, or those of ``sources``."""
    if sources is None:
        sources = _sources(args)
    reading = reading_of(args)
    found = {split: _records(members, reading) for split in SPLITS if (members := sources.get(split))}
    inputs = {split: [entry for one in sources[split] for entry in one.describe()] for split in found}
    settings = reading.settings() | ({"each": args.each} if args.each else {})
    notes: Sequence[str] = ()
    if divides(args) and "train" in found:
        divided, more, notes = _divided(args, found["train"], name_of)
        if twice := (divided.keys() & found.keys()) - {"train"}:
            raise InputError(f"{min(twice)}: there are files of this split already; do not take it out of train, too")
        found, settings = found | divided, settings | more
        if args.splits:
            inputs["splits"] = [describe_file(args.splits)]
    if args.each:
        found = {split: one.made_of(functools.partial(each, lists=args.each)) for split, one in found.items()}
    if not found and not args.data:
        raise InputError("no data: give --data, or files with --train, --valid or --test")
    if not found:
        raise InputError(
            f"{args.data}: no name in it says train, valid or test; name its files with --train, --valid and --test, "
            "or divide them with --valid-share, --split-key or --splits"
        )
    if getattr(args, "sentencepiece_train", None) is not None and "train" not in found:
        raise InputError("--sentencepiece-train: there is no --train to train a model on; give --sentencepiece-model")
    return Data({split: found[split] for split in SPLITS if split in found}, inputs, settings, notes)


def _sources(args: argparse.Namespace) -> dict[str, list[Source]]:
    named = {split: patterns for split in SPLITS if (patterns := getattr(args, split))}
    if args.data and named:
        raise InputError(f"--data {args.data} and --{next(iter(named))} exclude each other: give the one or the others")
    if args.data:
        return splits_of(args.data, unnamed=divides(args))
    return {split: expand(patterns) for split, patterns in named.items()}


def annotated(splits: dict[str, SplitRecords], parse: Callable) -> dict[str, SplitRecords]:
    """Give each split a parse function of its own: labels and answers are not read in test."""
    return {
        split: replace(records, parse=functools.partial(parse, annotated=split != "test"))
        for split, records in splits.items()
    }


def with_notes(table: Table, data: Data) -> Table:
    """The table of a corpus, followed by the notes."""
    return with_lines(table, data.notes) if data.notes else table


def _records(sources: Sequence[Source], reading: Reading) -> SplitRecords:
    files = tuple(SplitRecords(functools.partial(read, [one], reading), one.size) for one in sources)
    size = sum(one.size for one in files)
    return SplitRecords(functools.partial(read, sources, reading), size, files=files)


def _divided(
    args: argparse.Namespace, whole: SplitRecords, name_of: Callable[[Record], str]
) -> tuple[dict[str, SplitRecords], dict[str, object], Sequence[str]]:
    if [args.split_key is not None, args.splits is not None, bool(args.valid_share or args.test_share)].count(True) > 1:
        raise InputError("--split-key, --splits, and --valid-share with --test-share exclude each other: give one")
    if args.splits is not None:
        if not args.splits.is_file():
            raise InputError(f"--splits {args.splits}: no such file")
        found = splits.read_splits(args.splits, list(map(name_of, whole.records())))
        return found.divide(whole, name_of), {}, found.notes()
    if args.split_key is None:
        divided, settings = splits.by_shares(args, whole, lambda record: name_of(record).encode("utf-8", "replace"))
        return divided, settings, ()
    there: set[str] = set()
    for record in whole.records():
        there.add(_split_of(record, args.split_key))
        if len(there) == len(SPLITS):
            break
    divided = {
        split: whole.chosen(lambda record, split=split: _split_of(record, args.split_key) == split) for split in there
    }
    return divided, {"split_key": args.split_key}, ()


def _split_of(record: Record, key: str) -> str:
    """The split that a record names; train where it is no object, which is rejected there."""
    fields = keys.parsed_object(record.data)
    if fields is None:
        return "train"
    value = keys.under(fields, key)
    if not isinstance(value, str) or value.strip().lower() not in SPLIT_OF:
        raise InputError(
            f"{record.file}, line {record.line}: --split-key {key} must hold train, valid or test, is {value!r}"[:300]
        )
    return SPLIT_OF[value.strip().lower()]


def read(sources: Sequence[Source], reading: Reading = USUAL) -> Iterator[Record]:
    """Read the records of sources as unchecked JSON: the caller rejects what is no object."""
    for source in sources:
        yield from _of_source(source, reading)


def _of_source(source: Source, reading: Reading) -> Iterator[Record]:
    if source.rows is not None:
        return arrow.hub_rows(source.rows, source.name, reading.max_bytes)
    if source.entries:
        return texts.together(source.entries, reading.max_bytes)
    if source.other:
        return texts.line_pairs(source.path, source.other, reading.max_bytes)
    binary = arrow.format_of(source.path)
    return binary(source.path, reading.max_bytes) if binary else _of_text(source, reading)


def _of_text(source: Source, reading: Reading) -> Iterator[Record]:
    kind = Format.LIST if source.key else format_of(source.name, source.open, reading)
    size, key = reading.max_bytes, source.key or reading.records_key
    find, numbered = {
        Format.LINES: (functools.partial(records.lines, max_line_bytes=size), ""),
        Format.ARRAY: (functools.partial(json_stream.elements, key=None, max_bytes=size), "element"),
        Format.LIST: (functools.partial(json_stream.elements, key=key, max_bytes=size), "element"),
        Format.MEMBERS: (functools.partial(json_stream.members, max_bytes=size), "member"),
        Format.OBJECTS: (functools.partial(json_stream.objects, max_bytes=size), ""),
        Format.CSV: (functools.partial(tables.rows, reading=reading), ""),
        Format.TSV: (functools.partial(tables.rows, reading=reading, delimiter="\t"), ""),
    }[kind]
    with source.open() as (content, disk):
        yield from records.records_of(find(content, source.name), source.name, disk, numbered)


def each(whole: Iterator[Record], lists: Sequence[str]) -> Iterator[Record]:
    """Make a record of each object in the lists under some keys, with the other fields of the record around it."""
    for record in whole:
        fields = keys.parsed_object(record.data)
        if not isinstance(fields, dict):
            yield record
            continue
        items = [item for key in lists for item in _as_list(keys.under(fields, key))]
        if not items:
            problem = f"no list of objects: {' and '.join(lists)} (--each); the keys are {keys.names_of(fields)}"
            yield Record(record.file, record.line, None, record.progress, problem)
        rest = {key: value for key, value in fields.items() if key not in lists}
        for number, item in enumerate(items, 1):
            name = {"id": f"{fields['id']}-{number}"} if isinstance(fields.get("id"), str | int) else {}
            inner = item if isinstance(item, dict) else {"item": item}
            data = json.dumps({**rest, **name, **inner}).encode()
            yield Record(f"{record.file}, {number}", record.line, data, record.progress if number == 1 else 0)


def _as_list(value: object) -> list:
    return value if isinstance(value, list) else [] if value is None else [value]
