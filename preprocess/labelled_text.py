"""Make a data folder from any documents with a label each: lines of JSON.

A line has ``text``, ``label`` (a string, a whole number, true or false) and perhaps ``id``.
"""

import functools
import sys
from collections.abc import Sequence

from fairseq_poolingformer.tasks.classification.examples import ClassificationSplit
from fairseq_poolingformer.tasks.classification.scores import id_of, label_of
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.json_lines import BadLine

from .pipeline import labelled, task_corpus
from .pipeline.labelled import LabelledDocument
from .pipeline.records import InputError, Record, Reject, expand, read_lines


def parse(record: Record, annotated: bool = True) -> LabelledDocument | Reject:
    """Make an example of a line; ``annotated`` says whether it must have a label."""

    def make(fields: dict) -> LabelledDocument:
        text = json_values.text_of(fields, "text")
        if not text.strip():
            raise BadLine("empty document: text")
        name = id_of(fields, record.file, record.line)
        return LabelledDocument(name, (text,), label_of(fields) if annotated else None)

    return task_corpus.parse_object(record, make)


def find_labels(records) -> list[str]:
    """Return the labels of all good records, sorted.

    Raises:
        InputError: there are fewer than two.
    """
    examples = (parse(record) for record in records if record.data is not None)
    labels = sorted({example.label for example in examples if isinstance(example, LabelledDocument)})
    if len(labels) < 2:
        raise InputError(f"--train: needs two labels or more, has {len(labels)}: {', '.join(labels)}")
    return labels


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = task_corpus.make_parser("labelled_text", __doc__.split("\n")[0], "lines of JSON, plain, .gz or .bz2")
    parser.add_argument(
        "--labels",
        metavar="LABEL",
        nargs="+",
        help="the labels in the order of their numbers (default: train's, sorted)",
    )

    def make_corpus(args):
        if not args.labels and not args.train:
            raise InputError("--labels: give them where there is no --train to find them in")
        labels = args.labels or find_labels(read_lines(expand(args.train)))
        return task_corpus.make_corpus(
            args,
            "labelled_text",
            "document_classification",
            ClassificationSplit.layout,
            read_lines,
            parse,
            functools.partial(labelled.encode, labels=tuple(labels)),
            entries={"labels": labels},
        )

    return task_corpus.main(parser, make_corpus, argv)


if __name__ == "__main__":
    sys.exit(main())
