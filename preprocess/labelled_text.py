"""Make a data folder from any documents with a label each, in any format.

A record has ``text``, ``label`` (a string, a whole number, true or false, or a list of one of these) and perhaps
``id``; ``--text-key``, ``--label-key`` and ``--id-key`` name others, and ``--pair-key`` a second text. Other corpora
with labels make their corpus here, too.
"""

import argparse
import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fairseq_poolingformer.tasks.classification.data import ClassificationSplit
from fairseq_poolingformer.text.dictionary import EOS
from fairseq_poolingformer.text.json_values import BadLine, placed, read_object
from fairseq_poolingformer.text.labels import id_of, label_of
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from .pipeline import command, task_corpus
from .pipeline.encode import Encoded, one_line
from .pipeline.records import Example, Parse, Record, Reject, parsed
from .pipeline.report import task_table
from .pipeline.run import Corpus
from .pipeline.splits import SplitRecords
from .records import keys, options, sources

KIND = "document_classification"
MOST_LABELS = 1000


@dataclass(frozen=True)
class LabelledDocument(Example):
    """A document, perhaps a second text, and the label; None where that is not known."""

    label: str | None


def make_shared_parser(corpus: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every corpus of labelled documents has."""
    parser = command.make_parser(corpus, description, counts_truncated=False)
    task_corpus.add_lengths(parser)
    return parser


def corpus_of(labels: Sequence[str], **fields: object) -> Corpus:
    """Describe a corpus of labelled documents."""
    entries = {"kind": KIND, "format": 1, "labels": list(labels)}
    fields = {"table": task_table, **fields}
    fields["encode"] = functools.partial(encode, labels=tuple(labels))
    return Corpus(layout=ClassificationSplit.layout, entries=entries, unique_ids=True, **fields)


def encode(tokenizer: Tokenizer, example: LabelledDocument, labels: Sequence[str]) -> Encoded | Reject:
    """Make the arrays of :class:`~fairseq_poolingformer.tasks.classification.data.ClassificationSplit`."""
    document, *others = map(tokenizer.encode, example.texts)
    if not len(document) or not all(map(len, others)):
        return Reject("empty document")
    for other in others:
        document = np.concatenate([document, [EOS, EOS], other])  # RoBERTa's <s> text </s></s> other </s>
    if example.label is not None and example.label not in labels:
        return Reject(f"unknown label: {example.label!r} is not one of {', '.join(labels)}")
    label = np.array([labels.index(example.label)] if example.label is not None else [], np.int64)
    return Encoded({"document": document, "label": label}, {"id": one_line(example.id)})


@dataclass(frozen=True)
class Keys:
    """Where in a record its parts are: names or paths."""

    text: str = "text"
    label: str = "label"
    id: str = "id"
    pair: str = ""


USUAL = Keys()


def parse(record: Record, annotated: bool = True, where: Keys = USUAL) -> LabelledDocument | Reject:
    """Make an example of a record; ``annotated`` says whether it must have a label."""
    try:
        fields = read_object(record.data)
        texts = tuple(_text(fields, key, where) for key in (where.text, where.pair) if key)
        name, label = _name(fields, record, where), None
        if annotated:
            label = label_of({"label": keys.first(fields, [where.label], "label", "--label-key")[1]})
    except BadLine as error:
        return Reject(str(error))
    return LabelledDocument(name, texts, label)


def _text(fields: dict, key: str, where: Keys) -> str:
    option = "--text-key" if key == where.text else "--pair-key"
    text = "\n".join(keys.texts_of(*keys.first(fields, [key], "text", option)))
    if not text.strip():
        raise BadLine(f"empty document: {key}")
    return text


def _name(fields: dict, record: Record, where: Keys) -> str:
    name = keys.under(fields, where.id)
    return id_of({} if name is None else {"id": name}, record.file, record.line)


def name_of(record: Record, where: Keys = USUAL) -> str:
    """The id of a record, by which a file names splits."""
    try:
        return _name(read_object(record.data or b""), record, where)
    except BadLine:
        return f"{Path(record.file).name}:{record.line}"


def read_labels(path: Path) -> dict[str, str]:
    """The labels of records in any format that the command reads, by id."""
    labels: dict[str, str] = {}
    for record in options.read(sources.expand([str(path)])):
        with placed(record.file, f"line {record.line}"):
            if record.data is None:
                raise BadLine(record.problem)
            fields = read_object(record.data)
            name, label = _name(fields, record, USUAL), label_of(fields)
            if name in labels:
                raise BadLine(f"id {name} is there twice")
        labels[name] = label
    return labels


def train_labels(splits: Mapping[str, SplitRecords], parse: Parse) -> list[str]:
    """The labels of train, sorted; ``parse`` makes the examples, which have ``label``."""
    if "train" not in splits:
        raise ValueError("--labels: give them where there is no --train to find them in")
    labels: set[str] = set()
    first_reject = ""
    for record in splits["train"].records():
        example = parsed(record, parse)
        if isinstance(example, LabelledDocument):
            labels.add(example.label)
        elif not labels:
            first_reject = first_reject or f"; first reject: {record.file}, line {record.line}: {example.reason}"
        if len(labels) > MOST_LABELS:
            raise ValueError(
                f"--train: more than {MOST_LABELS:,} labels, such as {', '.join(sorted(labels)[:3])}, which are texts "
                "or amounts; name the key of the label, or the labels with --labels"
            )
    if len(labels) < 2:
        shown = f"{len(labels)}: {min(labels)}" if labels else f"none{first_reject or '; are its files empty?'}"
        raise ValueError(f"--train: needs two labels or more, has {shown}")
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
    """Describe the corpus that the command line names."""
    where = Keys(args.text_key, args.label_key, args.id_key, args.pair_key)
    read = functools.partial(parse, where=where)
    data = options.find(args, functools.partial(name_of, where=where), functools.partial(read, annotated=False))
    return corpus_of(
        args.labels or train_labels(data.splits, read),
        name="labelled_text",
        splits=options.annotated(data.splits, read),
        parse=read,
        settings={key: value for key, value in asdict(where).items() if value != getattr(USUAL, key)} | data.settings,
        inputs=data.inputs,
        table=options.with_notes(task_table, data),
    )


main = command.main_of(__name__, make_parser, make_corpus)
