"""The options of commands that read any records: where these are, and how they are divided."""

import argparse
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairseq_poolingformer.text.input_files import decompressed

from ..pipeline import command, json_stream, records, splits
from ..pipeline.records import MAX_LINE_BYTES, Parse, Record, describe_file
from ..pipeline.report import Table, with_lines
from ..pipeline.splits import SPLITS, SplitRecords
from . import keys, parquet, tables, texts
from .formats import Format, format_of
from .sources import Source, expand, splits_of

FORMATS = (
    "JSON lines or arrays, CSV, TSV, Parquet, line pairs .src and .tgt; plain, .gz, .bz2, .xz or .zst; "
    "folders of these, or of texts: documents/A.txt with summaries/A.txt, A.txt with A.summary.txt, or LABEL/A.txt. "
    f"For all else {keys.OTHERWISE}"
)
KEYS = (
    "A KEY is a key or column, or a path: a.b is b in the object a. A text is a string, or a list of strings and of "
    "sections, which have a heading, title or section, and text or paragraphs."
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
    text = "a file or folder; names of files or folders in it say train, valid or test"
    group.add_argument("--data", *names, metavar="DATA", help=text)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all but the options that name files and keys."""
    command.add_max_line_bytes(parser.add_argument_group("reading"))
    group = parser.add_argument_group("splits taken out of the training data")
    text = "a file that says which ids are in which split: JSON of lists under train, valid and test, or lines ID SPLIT"
    group.add_argument("--splits", metavar="FILE", type=Path, help=text)
    splits.add_shares(group, valid=0.0, test=0.0)


def find(args: argparse.Namespace, name_of: Callable[[Record], str], parse: Parse) -> Data:
    """Find the records that the options name.

    Args:
        args: of :func:`add_data`, :func:`add_options`, ``--train``, ``--valid`` and ``--test``.
        name_of: the id of a record, by which ``--splits`` divides.
        parse: makes an example of a record without its label or summary; shares divide by its texts.
    """
    divides = bool(args.splits or args.valid_share or args.test_share)
    named = {split: patterns for split in SPLITS if (patterns := getattr(args, split))}
    if args.data and named:
        raise ValueError(f"--data {args.data} and --{next(iter(named))} exclude each other: give the one or the others")
    if args.data:
        sources = splits_of(args.data, unnamed=divides)
    else:
        sources = {split: expand(patterns) for split, patterns in named.items()}
    of_split = {split: _records(sources[split], args.max_line_bytes) for split in SPLITS if sources.get(split)}
    inputs = {split: [entry for one in sources[split] for entry in one.describe()] for split in of_split}
    settings: dict[str, object] = {}
    notes: Sequence[str] = ()
    if divides and "train" in of_split:
        divided, settings, notes = _divided(args, of_split["train"], name_of, parse)
        if twice := (divided.keys() & of_split.keys()) - {"train"}:
            raise ValueError(f"{min(twice)}: there are files of this split already; do not take it out of train, too")
        of_split |= divided
        if args.splits:
            inputs["splits"] = [describe_file(args.splits)]
    if not of_split and not args.data:
        raise ValueError("no data: give --data, or files with --train, --valid or --test")
    if not of_split:
        raise ValueError(
            f"{args.data}: no name in it says train, valid or test; name its files with --train, --valid and --test, "
            "or divide them with --valid-share or --splits"
        )
    if args.sentencepiece_train is not None and "train" not in of_split:
        raise ValueError("--sentencepiece-train: there is no --train to train a model on; give --sentencepiece-model")
    return Data({split: of_split[split] for split in SPLITS if split in of_split}, inputs, settings, notes)


def annotated(splits: dict[str, SplitRecords], parse: Callable) -> dict[str, SplitRecords]:
    """Give each split a parse function of its own: labels and answers are not read in test."""
    return {
        split: replace(records, parse=functools.partial(parse, annotated=split != "test"))
        for split, records in splits.items()
    }


def with_notes(table: Table, data: Data) -> Table:
    """The table of a corpus, followed by the notes."""
    return with_lines(table, data.notes) if data.notes else table


def _records(sources: Sequence[Source], max_bytes: int) -> SplitRecords:
    files = tuple(SplitRecords(functools.partial(read, [one], max_bytes), one.size) for one in sources)
    return SplitRecords(functools.partial(read, sources, max_bytes), sum(one.size for one in sources), files=files)


def _divided(
    args: argparse.Namespace, whole: SplitRecords, name_of: Callable[[Record], str], parse: Parse
) -> tuple[dict[str, SplitRecords], dict[str, object], Sequence[str]]:
    if args.splits is None:
        return *splits.by_shares(args, whole, functools.partial(splits.input_of, parse=parse)), ()
    if args.valid_share or args.test_share:
        raise ValueError("--splits, and --valid-share with --test-share exclude each other: give one")
    if not args.splits.is_file():
        raise ValueError(f"--splits {args.splits}: no such file")
    named = splits.read_splits(args.splits, list(map(name_of, whole.records())))
    return named.divide(whole, name_of), {}, named.notes()


def read(sources: Sequence[Source], max_bytes: int = MAX_LINE_BYTES) -> Iterator[Record]:
    """Read the records of sources as unchecked JSON: the caller rejects what is no object."""
    for source in sources:
        if source.entries:
            yield from texts.together(source.entries, max_bytes)
        elif source.other:
            yield from texts.line_pairs(source.path, source.other, max_bytes)
        elif parquet.is_parquet(source.path):
            yield from parquet.rows(source.path, max_bytes)
        else:
            yield from _of_text(source, max_bytes)


def _of_text(source: Source, max_bytes: int) -> Iterator[Record]:
    name = str(source.path)
    kind, key = format_of(source.path, max_bytes)
    with open(source.path, "rb") as disk, decompressed(disk, name) as content:
        if kind is Format.LINES:
            yield from records.records_of(records.lines(content, name, max_bytes), name, disk)
        elif kind in (Format.ARRAY, Format.LIST):
            elements = json_stream.elements(content, name, key or None, max_bytes)
            yield from records.records_of(elements, name, disk, "element")
        else:
            rows = tables.rows(content, name, max_bytes, "\t" if kind is Format.TSV else "")
            yield from records.records_of(rows, name, disk)
