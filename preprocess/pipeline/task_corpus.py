"""The part that the command lines of Longformer's downstream tasks share: their files, the corpus, the table.

Question answering makes its corpus here, too.
"""

import argparse
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from fairseq_poolingformer.text.data_folder import DataFolder, Layout
from fairseq_poolingformer.text.json_lines import BadLine, read_object
from fairseq_poolingformer.text.sequences import read_sizes
from fairseq_poolingformer.text.table import aligned

from . import command
from .parts import Encode
from .records import Example, InputError, Record, Reject, Skipped, describe_files, expand
from .run import Corpus, Split

main = command.main


def make_parser(corpus: str, description: str, files: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every such corpus has.

    Args:
        corpus: its name.
        description: says what the command does.
        files: the kind of input files, for the help.
    """
    parser = make_encoder_parser(corpus, description)
    add_inputs(parser, files)
    add_lengths(parser)
    return parser


def make_encoder_parser(corpus: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every corpus that a pretrained RoBERTa reads, which knows no line breaks."""
    parser = command.make_parser(corpus, description, counts_truncated=False)
    parser.set_defaults(white_space="blank")
    return parser


def add_inputs(parser: argparse.ArgumentParser, files: str) -> None:
    """Add ``--train``, ``--valid`` and ``--test``, whose kind of files ``files`` says."""
    group = parser.add_argument_group(f"input ({files})")
    group.add_argument("--train", metavar="FILE", nargs="+", help="files or globs to train on")
    group.add_argument("--valid", metavar="FILE", nargs="+", help="files or globs to validate on: the development set")
    group.add_argument("--test", metavar="FILE", nargs="+", help="files or globs to predict only: answers are not read")


def add_lengths(parser: argparse.ArgumentParser) -> None:
    """Add ``--max-positions``, the lengths that :func:`length_table` reports."""
    parser.add_argument(
        "--max-positions",
        metavar="N",
        dest="max_source_length",
        type=int,
        nargs="+",
        default=[512, 4096],
        help="report how many examples have more tokens; nothing is cut here (default: 512 4096)",
    )


def make_corpus(
    args: argparse.Namespace,
    name: str,
    kind: str,
    layout: Layout,
    read: Callable[[Sequence[Path]], Iterator[Record]],
    parse: Callable[..., Example | Reject | Skipped],
    encode: Encode,
    settings: Mapping[str, object] | None = None,
    entries: Mapping[str, object] | None = None,
    inputs: Mapping[str, object] | None = None,
    table: Callable[..., str] | None = None,
) -> Corpus:
    """Describe the corpus that the command line names.

    Args:
        args: parsed options, ``train``, ``valid`` and ``test`` among them.
        name: the corpus's name.
        kind: of task, as fairseq's ``--task``; goes into ``corpus.json``.
        layout: the files of the data folder.
        read: paths to records.
        parse: record to example; takes ``annotated``, False for the files of ``--test``.
        encode: example to arrays and texts.
        settings: everything that changes the result of ``parse``, as JSON values.
        entries: further entries of ``corpus.json``, which may change the result of ``encode``.
        inputs: identifies further input.
        table: makes the report; None for :func:`length_table`.

    Raises:
        InputError: a file is missing, or there are no files.
    """
    named = {"train": args.train, "valid": args.valid, "test": args.test}
    files = {split: expand(patterns) for split, patterns in named.items() if patterns}
    if not files:
        raise InputError("no data: give files with --train, --valid or --test")
    if args.sentencepiece_train is not None and "train" not in files:
        raise InputError("--sentencepiece-train: there is no --train to train a model on; give --sentencepiece-model")
    return Corpus(
        name=name,
        splits={
            split: Split.of_files(read, paths, functools.partial(parse, annotated=split != "test"))
            for split, paths in files.items()
        },
        parse=functools.partial(parse, annotated=True),
        settings=settings or {},
        inputs={**describe_files(files), **(inputs or {})},
        layout=layout,
        encode=encode,
        entries={"kind": kind, "format": 1, **(entries or {})},
        table=table or length_table,
        unique_ids=True,
    )


def checked_id(name: str) -> str:
    """Return an id.

    Raises:
        BadLine: it is empty.
    """
    if not name.strip():
        raise BadLine("empty id")
    return name


def parse_object(record: Record, make: Callable[[dict], Example]) -> Example | Reject:
    """Make an example of a record that is a JSON object; where that raises ValueError, return its message."""
    try:
        return make(read_object(record.data))
    except BadLine as error:
        return Reject(str(error))
    except ValueError as error:
        return Reject(f"malformed: {error}")


def length_table(
    folder: DataFolder,
    name: str,
    splits: Sequence[str],
    max_positions: Sequence[int],
    rejects: Mapping[str, int] | None = None,
) -> str:
    """Report examples and lengths in tokens of each split, and the notes of its examples, where the layout has them.

    Args:
        folder: the data folder.
        name: the corpus's name.
        splits: its splits.
        max_positions: numbers of tokens; the table counts the examples with more text.
        rejects: number of rejected records of each split, where known.

    Returns:
        Lines of text, columns aligned.
    """
    head = [name, "examples", *(f"{array} median" for array in folder.layout.ids), "all median", "95th"]
    rows, lines = [[*head, *(f"> {length}" for length in max_positions), "rejected"]], []
    for split in splits:
        sizes = [read_sizes(folder.array(split, array)) for array in folder.layout.ids]
        whole = np.sum(sizes, axis=0)
        numbers = [*(np.median(column) for column in sizes), *np.percentile(whole, [50, 95])]
        row = [split, str(len(whole)), *(f"{number:.0f}" for number in numbers)]
        for length in max_positions:
            longer = np.count_nonzero(whole > length)
            row.append(f"{longer} ({100 * longer / len(whole):.1f} %)")
        rows.append([*row, "" if rejects is None else str(rejects[split])])
        if "notes" in folder.layout.texts:
            lines += count_notes(split, folder.text(split, "notes"))
    return "\n".join([aligned(rows), *lines])


def with_lines(table: Callable[..., str], lines: Sequence[str]) -> Callable[..., str]:
    """Return a report that goes on with these lines."""
    return lambda *args, **options: "\n".join([table(*args, **options), *lines])


def count_notes(split: str, path: Path) -> list[str]:
    """Return one line for each kind of note; ``{split}.notes.txt`` has those of each example, separated by ``; ``."""
    with open(path, encoding="utf-8") as lines:
        counts = Counter(note for line in lines if line != "\n" for note in line.rstrip("\n").split("; "))
    return [f"{split}: {count} × {note}" for note, count in counts.most_common()]
