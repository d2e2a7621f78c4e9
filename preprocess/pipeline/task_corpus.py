"""The part that the command lines of Longformer's downstream tasks share: their files and the corpus.

Question answering makes its corpus here, too.
"""

import argparse
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.json_values import BadLine, read_object

from . import command
from .records import Example, Record, Reject, Skipped, describe_files, expand
from .report import task_table
from .run import Corpus
from .splits import SplitRecords


def make_parser(corpus: str, description: str, files: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every such corpus has."""
    parser = command.make_parser(corpus, description, counts_truncated=False)
    add_inputs(parser, files)
    add_lengths(parser)
    return parser


def add_inputs(parser: argparse.ArgumentParser, files: str) -> None:
    """Add ``--train``, ``--valid`` and ``--test``, whose kind of files ``files`` says."""
    group = parser.add_argument_group("input", files)
    group.add_argument("--train", metavar="FILE", nargs="+", help="files or globs to train on")
    group.add_argument("--valid", metavar="FILE", nargs="+", help="files or globs to validate on: the development set")
    group.add_argument("--test", metavar="FILE", nargs="+", help="files or globs to predict only: answers are not read")


def add_lengths(parser: argparse.ArgumentParser) -> None:
    """Add ``--max-positions``, the lengths that the table reports."""
    text = "report how many examples have more tokens; nothing is cut here"
    command.add_lengths(parser, "--max-positions", [512, 4096], text)


def make_corpus(
    args: argparse.Namespace,
    read: Callable[[Sequence[Path]], Iterator[Record]],
    parse: Callable[..., Example | Reject | Skipped],
    *,
    name: str,
    kind: str | None = None,
    inputs: Mapping[str, object] | None = None,
    entries: Mapping[str, object] | None = None,
    **fields: object,
) -> Corpus:
    """Describe the corpus that the command line names."""
    named = {"train": args.train, "valid": args.valid, "test": args.test}
    files = {split: expand(patterns) for split, patterns in named.items() if patterns}
    if not files:
        raise ValueError("no data: give files with --train, --valid or --test")
    if args.sentencepiece_train is not None and "train" not in files:
        raise ValueError("--sentencepiece-train: there is no --train to train a model on; give --sentencepiece-model")
    splits = {
        split: SplitRecords.of_files(read, paths, functools.partial(parse, annotated=split != "test"))
        for split, paths in files.items()
    }
    defaults = {"settings": {}, "table": task_table, "unique_ids": True}
    return Corpus(
        name=name,
        splits=splits,
        parse=functools.partial(parse, annotated=True),
        inputs={**describe_files(files), **(inputs or {})},
        entries={"kind": kind or name, "format": 1, **(entries or {})},
        **(defaults | fields),
    )


def id_of(fields: dict, key: str) -> str:
    """Return the id under a key."""
    name = json_values.text_of(fields, key)
    if not name.strip():
        raise BadLine("empty id")
    return name


def question_of(fields: dict, key: str) -> str:
    """Return the question under a key."""
    question = json_values.text_of(fields, key)
    if not question.strip():
        raise BadLine(f"empty question: {key}")
    return question


def from_object(make: Callable[..., Example | Skipped]) -> Callable[..., Example | Reject | Skipped]:
    """Make a record's parser from a function of its JSON object, whose ValueError becomes a reject."""

    @functools.wraps(make)
    def parse(record: Record, *args: object, **options: object) -> Example | Reject | Skipped:
        try:
            return make(read_object(record.data), *args, **options)
        except BadLine as error:
            return Reject(str(error))
        except ValueError as error:
            return Reject(f"malformed: {error}")

    return parse
