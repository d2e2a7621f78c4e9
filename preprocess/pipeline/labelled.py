"""The part that corpora of labelled documents share: examples, shares of a corpus as splits, the layout."""

import argparse
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairseq_poolingformer.tasks.classification.examples import ClassificationSplit
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from . import task_corpus
from .documents import hash_of
from .encode import Encoded, one_line
from .parts import Parse
from .records import Example, InputError, Record, Reject
from .run import Corpus, Split


@dataclass(frozen=True)
class LabelledDocument(Example):
    """A document, its only text, and its label; None where that is not known."""

    label: str | None


def make_parser(corpus: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every such corpus has."""
    parser = task_corpus.make_encoder_parser(corpus, description)
    task_corpus.add_lengths(parser)
    return parser


def add_shares(parser: argparse.ArgumentParser, valid: float, test: float) -> None:
    """Add the options that take splits out of the training documents."""
    for split, default in (("valid", valid), ("test", test)):
        parser.add_argument(
            f"--{split}-share",
            metavar="F",
            type=float,
            default=default,
            help=f"share of the training documents that a hash puts into {split}; 0: no such split "
            "(default: %(default)s)",
        )
    parser.add_argument(
        "--split-seed", metavar="S", type=int, default=0, help="another number draws other splits (default: 0)"
    )


def shares(
    args: argparse.Namespace,
    records: Callable[[], Iterator[Record]],
    size: int,
    key: Callable[[Record], bytes] = lambda record: record.data or b"",
) -> tuple[dict[str, Split], dict[str, object]]:
    """Divide records among train, valid and test as the options of :func:`add_shares` say, by a hash of their keys.

    Returns:
        The splits, and the settings that decide them.

    Raises:
        InputError: the shares leave nothing for training.
    """
    valid, test = args.valid_share, args.test_share
    if min(valid, test) < 0 or valid + test >= 1:
        raise InputError(f"--valid-share {valid:g} --test-share {test:g}: must be 0 or more, and together less than 1")
    limits = {"valid": (0.0, valid), "test": (valid, valid + test), "train": (valid + test, 1.0)}
    splits = {
        split: Split(functools.partial(_between, records, key, args.split_seed, *limits[split]), size)
        for split in ("train", "valid", "test")
        if limits[split][0] < limits[split][1]
    }
    return splits, {"valid_share": valid, "test_share": test, "split_seed": args.split_seed}


def _between(
    records: Callable[[], Iterator[Record]], key: Callable[[Record], bytes], seed: int, first: float, end: float
) -> Iterator[Record]:
    """Read the records whose hash is in a share; each carries the progress of those before it."""
    progress = 0
    for record in records():
        progress += record.progress
        place = hash_of(b"%d " % seed + key(record)) / 2**64
        if first <= place < end:
            yield replace(record, progress=progress)
            progress = 0


def make_corpus(
    name: str,
    splits: Mapping[str, Split],
    parse: Parse,
    labels: Sequence[str],
    settings: Mapping[str, object],
    inputs: object,
    table: Callable[..., str] = task_corpus.length_table,
) -> Corpus:
    """Describe a corpus of labelled documents.

    Args:
        name: the corpus's name.
        splits: of the records.
        parse: record to :class:`LabelledDocument`.
        labels: their names; a label's number is its place.
        settings: everything that decides the records and the result of ``parse``.
        inputs: identifies the input.
        table: makes the report.
    """
    return Corpus(
        name=name,
        splits=splits,
        parse=parse,
        settings=settings,
        inputs=inputs,
        layout=ClassificationSplit.layout,
        encode=functools.partial(encode, labels=tuple(labels)),
        entries={"kind": "document_classification", "format": 1, "labels": list(labels)},
        table=table,
        unique_ids=True,
    )


def encode(tokenizer: Tokenizer, example: LabelledDocument, labels: Sequence[str]) -> Encoded | Reject:
    """Make the arrays of :class:`~fairseq_poolingformer.tasks.classification.examples.ClassificationSplit`."""
    document = tokenizer.encode(example.texts[0])
    if not len(document):
        return Reject("empty document")
    if example.label is not None and example.label not in labels:
        return Reject(f"unknown label: {example.label!r} is none of {', '.join(labels)}")
    label = [] if example.label is None else [labels.index(example.label)]
    return Encoded({"document": document, "label": np.array(label, np.int64)}, {"id": one_line(example.id)})
