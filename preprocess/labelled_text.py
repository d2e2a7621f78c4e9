"""Make a data folder from any documents with a label each: lines of JSON.

A line has ``text``, ``label`` (a string, a whole number, true or false) and perhaps ``id``. The other corpora of
labelled documents make their corpus here, too.
"""

import argparse
import functools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fairseq_poolingformer.tasks.classification.examples import ClassificationSplit
from fairseq_poolingformer.tasks.classification.scores import id_of, label_of
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.json_lines import BadLine
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from .pipeline import command, task_corpus
from .pipeline.encode import Encoded, one_line
from .pipeline.records import Example, InputError, Record, Reject, expand, read_lines
from .pipeline.report import task_table
from .pipeline.run import Corpus

KIND = "document_classification"


@dataclass(frozen=True)
class LabelledDocument(Example):
    """A document, its only text, and its label; None where that is not known."""

    label: str | None


def make_shared_parser(corpus: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every corpus of labelled documents has."""
    parser = task_corpus.make_encoder_parser(corpus, description)
    task_corpus.add_lengths(parser)
    return parser


def corpus_of(labels: Sequence[str], **fields: object) -> Corpus:
    """Describe a corpus of labelled documents.

    Args:
        labels: their names; a label's number is its place.
        fields: the other attributes of the :class:`Corpus`.
    """
    entries = {"kind": KIND, "format": 1, "labels": list(labels)}
    fields = {"table": task_table, **fields}
    return Corpus(
        layout=ClassificationSplit.layout, encode=encoder_of(labels), entries=entries, unique_ids=True, **fields
    )


def encoder_of(labels: Sequence[str]) -> functools.partial:
    """:func:`encode` with the names of the labels."""
    return functools.partial(encode, labels=tuple(labels))


def encode(tokenizer: Tokenizer, example: LabelledDocument, labels: Sequence[str]) -> Encoded | Reject:
    """Make the arrays of :class:`~fairseq_poolingformer.tasks.classification.examples.ClassificationSplit`."""
    document = tokenizer.encode(example.texts[0])
    if not len(document):
        return Reject("empty document")
    if example.label is not None and example.label not in labels:
        return Reject(f"unknown label: {example.label!r} is none of {', '.join(labels)}")
    label = [] if example.label is None else [labels.index(example.label)]
    return Encoded({"document": document, "label": np.array(label, np.int64)}, {"id": one_line(example.id)})


def parse(record: Record, annotated: bool = True) -> LabelledDocument | Reject:
    """Make an example of a line; ``annotated`` says whether it must have a label."""

    @task_corpus.from_object
    def make(fields: dict) -> LabelledDocument:
        text = json_values.text_of(fields, "text")
        if not text.strip():
            raise BadLine("empty document: text")
        name = id_of(fields, record.file, record.line)
        return LabelledDocument(name, (text,), label_of(fields) if annotated else None)

    return make(record)


def find_labels(records: Iterable[Record]) -> list[str]:
    """Return the labels of all good records, sorted.

    Raises:
        InputError: there are fewer than two.
    """
    examples = (parse(record) for record in records if record.data is not None)
    labels = sorted({example.label for example in examples if isinstance(example, LabelledDocument)})
    if len(labels) < 2:
        raise InputError(f"--train: needs two labels or more, has {len(labels)}: {', '.join(labels)}")
    return labels


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = task_corpus.make_parser("labelled_text", __doc__, "lines of JSON, plain, .gz or .bz2")
    text = "the labels in the order of their numbers (default: train's, sorted)"
    parser.add_argument("--labels", metavar="LABEL", nargs="+", help=text)
    return parser


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Describe the corpus that the command line names.

    Raises:
        InputError: a file is missing, or the labels are.
    """
    if not args.labels and not args.train:
        raise InputError("--labels: give them where there is no --train to find them in")
    labels = args.labels or find_labels(read_lines(expand(args.train)))
    fields = {"layout": ClassificationSplit.layout, "encode": encoder_of(labels), "entries": {"labels": labels}}
    return task_corpus.make_corpus(args, read_lines, parse, name="labelled_text", kind=KIND, **fields)


main = functools.partial(command.main, make_parser, make_corpus)

if __name__ == "__main__":
    sys.exit(main())
