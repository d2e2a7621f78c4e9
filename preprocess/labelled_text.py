"""Make a data folder from any documents with a label each, in any format.

A record has ``text``, ``label`` (a string, a whole number, true or false) and perhaps ``id``; ``--text-key``,
``--label-key`` and ``--id-key`` name others, and ``--pair-key`` a second text. The other corpora of labelled documents
make their corpus here, too.
"""

import argparse
import functools
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fairseq_poolingformer.tasks.classification.examples import ClassificationSplit
from fairseq_poolingformer.tasks.classification.scores import id_of, label_of
from fairseq_poolingformer.text.dictionary import EOS
from fairseq_poolingformer.text.json_lines import BadLine, type_name
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from .pipeline import command, task_corpus
from .pipeline.encode import Encoded, one_line
from .pipeline.records import Example, InputError, Parse, Record, Reject, parsed
from .pipeline.report import task_table
from .pipeline.run import Corpus
from .records import keys, options

KIND = "document_classification"
MOST_LABELS = 1000
_FRACTION = re.compile(r"-?\d*\.\d+")


@dataclass(frozen=True)
class LabelledDocument(Example):
    """A document, perhaps a second text, and the label; None where that is not known."""

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
    document, *others = map(tokenizer.encode, example.texts)
    if not len(document) or not all(map(len, others)):
        return Reject("empty document")
    for other in others:
        document = np.concatenate([document, [EOS, EOS], other])  # RoBERTa's <s> text </s></s> other </s>
    if example.label is not None and example.label not in labels:
        return Reject(f"unknown label: {example.label!r} is none of {', '.join(labels)}")
    label = [] if example.label is None else [labels.index(example.label)]
    return Encoded({"document": document, "label": np.array(label, np.int64)}, {"id": one_line(example.id)})


@dataclass(frozen=True)
class Keys:
    """Where in a record its parts are: key paths."""

    text: str = "text"
    label: str = "label"
    id: str = "id"
    pair: str = ""


USUAL = Keys()


def parse(record: Record, annotated: bool = True, where: Keys = USUAL) -> LabelledDocument | Reject:
    """Make an example of a record; ``annotated`` says whether it must have a label."""

    @task_corpus.from_object
    def make(fields: dict) -> LabelledDocument:
        texts = tuple(_text(fields, key, where) for key in (where.text, where.pair) if key)
        name = id_of(_renamed(fields, "id", where.id), record.file, record.line)
        return LabelledDocument(name, texts, _label(fields, where) if annotated else None)

    return make(record)


def _text(fields: dict, key: str, where: Keys) -> str:
    text = keys.under(fields, key)
    if not isinstance(text, str):
        option = "--text-key" if key == where.text else "--pair-key"
        _, text = keys.first(fields, [key], "text", option)
        if not isinstance(text, list) or not all(isinstance(part, str) for part in text):
            raise BadLine(f"wrong type: {key} is {type_name(text)}, not a string or a list of strings")
        text = "\n".join(text)
    if not text.strip():
        raise BadLine(f"empty document: {key}")
    return text


def _label(fields: dict, where: Keys) -> str:
    _, label = keys.first(fields, [where.label], "label", "--label-key")
    fields = {"label": label}
    if isinstance(label, list) and len(label) == 1:
        fields, label = {"label": label[0]}, label[0]
    if isinstance(label, list):
        raise BadLine(f"several labels: the task {KIND} has one of a document; make a data folder for each label")
    if isinstance(label, float) and label.is_integer():
        fields = {"label": int(label)}
    elif isinstance(label, float):
        raise BadLine(f"fraction as label: the task {KIND} learns classes, no amounts; name ranges, such as low, high")
    return label_of(fields)


def _renamed(fields: dict, name: str, key: str) -> dict:
    """The fields with what is under a key path under a name; nothing is under it where the path leads nowhere."""
    if name == key and key in fields:
        return fields
    others = {other: value for other, value in fields.items() if other != name}
    found = keys.under(fields, key)
    return others if found is None else others | {name: found}


def name_of(record: Record, where: Keys = USUAL) -> str:
    """The id of a record, by which splits are made."""
    fields = keys.parsed_object(record.data) if record.data is not None else None
    try:
        return id_of(_renamed(fields or {}, "id", where.id), record.file, record.line)
    except BadLine:
        return f"{Path(record.file).name}:{record.line}"


def find_labels(records: Iterable[Record], parse: Parse = parse) -> list[str]:
    """Return the labels of all good records, sorted.

    Raises:
        InputError: there are fewer than two, or as many as amounts have.
    """
    labels: set[str] = set()
    first_reject = ""
    for record in records:
        example = parsed(record, parse)
        if isinstance(example, LabelledDocument):
            labels.add(example.label)
        elif not labels:
            first_reject = first_reject or f"; first reject: {record.file}, line {record.line}: {example.reason}"
        if len(labels) > MOST_LABELS:
            break
    shown = ", ".join(sorted(labels)[:3])
    if len(labels) > MOST_LABELS or (labels and all(map(_FRACTION.fullmatch, labels))):
        raise InputError(
            f"--train: labels such as {shown} are amounts or texts, and the task {KIND} learns classes; name the key "
            "of the class with --label-key, or the classes with --labels"
        )
    if len(labels) < 2:
        found = f"{len(labels)}: {shown}" if labels else "none"
        raise InputError(f"--train: needs two labels or more, has {found}{first_reject}")
    return sorted(labels)


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = task_corpus.make_parser("labelled_text", __doc__, options.FORMATS)
    options.add_data(parser.add_argument_group("all splits at once"))
    group = parser.add_argument_group("what a record has", options.KEYS)
    for part in ("text", "label", "id"):
        text = f"where its {part} is (default: %(default)s)"
        group.add_argument(f"--{part}-key", metavar="KEY", default=getattr(USUAL, part), help=text)
    text = "where a second text is: the document is <s> text </s></s> second </s>"
    group.add_argument("--pair-key", metavar="KEY", default=USUAL.pair, help=text)
    text = "the labels in the order of their numbers (default: train's, sorted)"
    group.add_argument("--labels", metavar="LABEL", nargs="+", help=text)
    options.add_options(parser)
    return parser


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Describe the corpus that the command line names.

    Raises:
        InputError: a file is missing, or the labels are.
    """
    where = Keys(args.text_key, args.label_key, args.id_key, args.pair_key)
    data = options.find(args, functools.partial(name_of, where=where))
    if not args.labels and "train" not in data.splits:
        raise InputError("--labels: give them where there is no --train to find them in")
    read = functools.partial(parse, where=where)
    labels = args.labels or find_labels(data.splits["train"].records(), read)
    settings = {key: value for key, value in asdict(where).items() if value != getattr(USUAL, key)} | data.settings
    return corpus_of(
        labels,
        name="labelled_text",
        splits=options.annotated(data.splits, read),
        parse=read,
        settings=settings,
        inputs=data.inputs,
        table=options.with_notes(task_table, data),
    )


main = functools.partial(command.main, make_parser, make_corpus)

if __name__ == "__main__":
    sys.exit(main())
