"""Make a data folder from any documents with a label, several labels or an amount each, in any format.

A record has ``text``, ``label`` (a string, a whole number, true or false; a list of these; or an amount) and perhaps
``id``; ``--text-key``, ``--label-key`` and ``--id-key`` name others, and ``--pair-key`` a second text. Other corpora
with labels make their corpus here, too.
"""

import argparse
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fairseq_poolingformer.tasks.classification.data import ClassificationSplit, amounts_as_integers, label_of
from fairseq_poolingformer.text.dictionary import EOS
from fairseq_poolingformer.text.json_values import BadLine, type_name
from fairseq_poolingformer.text.labels import AMOUNT, AMOUNT_LABEL, ONE, PROBLEM_TYPES, SEVERAL, id_of
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from .pipeline import command, task_corpus
from .pipeline.encode import Encoded, one_line
from .pipeline.records import Example, InputError, Parse, Record, Reject, parsed
from .pipeline.report import task_table, with_lines
from .pipeline.run import Corpus
from .pipeline.splits import SplitRecords
from .records import keys, options

KIND = "document_classification"
MOST_LABELS = 1000
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
LARGEST_AMOUNT = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class LabelledDocument(Example):
    """A document, perhaps a second text, and the label, or several; None where that is not known."""

    label: str | tuple[str, ...] | None


def make_shared_parser(corpus: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every corpus of labelled documents has."""
    parser = command.make_parser(corpus, description, counts_truncated=False)
    task_corpus.add_lengths(parser)
    return parser


def corpus_of(labels: Sequence[str], problem: str = ONE, **fields: object) -> Corpus:
    """Describe a corpus of labelled documents."""
    entries = {"kind": KIND, "format": 1, "labels": list(labels)}
    entries |= {} if problem == ONE else {"problem_type": problem}
    fields = {"table": task_table, **fields}
    encode = encoder_of(labels, problem)
    return Corpus(layout=ClassificationSplit.layout, encode=encode, entries=entries, unique_ids=True, **fields)


def encoder_of(labels: Sequence[str], problem: str = ONE) -> functools.partial:
    """:func:`encode` with the names of the labels."""
    return functools.partial(encode, labels=tuple(labels), problem=problem)


def encode(
    tokenizer: Tokenizer, example: LabelledDocument, labels: Sequence[str], problem: str = ONE
) -> Encoded | Reject:
    """Make the arrays of :class:`~fairseq_poolingformer.tasks.classification.data.ClassificationSplit`."""
    document, *others = map(tokenizer.encode, example.texts)
    if not len(document) or not all(map(len, others)):
        return Reject("empty document")
    for other in others:
        document = np.concatenate([document, [EOS, EOS], other])  # RoBERTa's <s> text </s></s> other </s>
    label = _numbers(example.label, labels, problem) if example.label is not None else np.zeros(0, np.int64)
    if isinstance(label, Reject):
        return label
    return Encoded({"document": document, "label": label}, {"id": one_line(example.id)})


def _numbers(label: str | tuple[str, ...], labels: Sequence[str], problem: str) -> np.ndarray | Reject:
    found = (label,) if isinstance(label, str) else label
    if problem == AMOUNT:
        if len(found) != 1 or not _NUMBER.fullmatch(found[0]) or not abs(float(found[0])) <= LARGEST_AMOUNT:
            return Reject(f"not an amount: {', '.join(found)[:60]!r}")
        return amounts_as_integers(np.array([float(found[0])]))
    if unknown := [name for name in found if name not in labels]:
        return Reject(f"unknown label: {unknown[0]!r} is not one of {', '.join(labels)}")
    if problem == SEVERAL:
        return np.isin(labels, found).astype(np.int64)
    if len(found) != 1:
        return Reject(f"several labels, and --problem-type is {problem}: {', '.join(found)[:60]!r}")
    return np.array([labels.index(found[0])])


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
        name = id_of(renamed(fields, "id", where.id), record.file, record.line)
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


def _label(fields: dict, where: Keys) -> str | tuple[str, ...]:
    _, label = keys.first(fields, [where.label], "label", "--label-key")
    found = label_of({"label": label})
    if isinstance(found, float):
        return str(int(found)) if found.is_integer() else repr(found)
    return found


def renamed(fields: dict, name: str, key: str) -> dict:
    """The fields with what is under a key path under a name; nothing is under it where the path leads nowhere."""
    if name == key and key in fields:
        return fields
    others = {other: value for other, value in fields.items() if other != name}
    found = keys.under(fields, key)
    return others if found is None else others | {name: found}


def name_of(record: Record, where: Keys = USUAL) -> str:
    """The id of a record, by which splits are made."""
    fields = keys.parsed_object(record.data)
    try:
        return id_of(renamed(fields or {}, "id", where.id), record.file, record.line)
    except BadLine:
        return f"{Path(record.file).name}:{record.line}"


@dataclass(frozen=True)
class TrainLabels:
    """The labels of train."""

    seen: frozenset[str]  # those of all good records, or the first :data:`MOST_LABELS` and one more
    has_lists: bool = False  # whether a record has a list of none or of several
    first_reject: str = ""  # where there are no labels, why

    @classmethod
    def find(cls, splits: Mapping[str, SplitRecords], parse: Parse) -> "TrainLabels":
        """Read train; the examples of ``parse`` have ``label``."""
        if "train" not in splits:
            raise InputError("--labels: give them where there is no --train to find them in")
        seen: set[str] = set()
        has_lists, first_reject = False, ""
        for record in splits["train"].records():
            example = parsed(record, parse)
            if isinstance(example, Example):
                has_lists = has_lists or isinstance(example.label, tuple)
                seen.update(example.label if isinstance(example.label, tuple) else [example.label])
            elif not seen:
                first_reject = first_reject or f"; first reject: {record.file}, line {record.line}: {example.reason}"
            if len(seen) > MOST_LABELS:
                break
        return cls(frozenset(seen), has_lists, first_reject)

    def names(self) -> list[str]:
        """Return the labels, sorted."""
        shown = ", ".join(sorted(self.seen)[:3])
        if len(self.seen) > MOST_LABELS:
            raise InputError(
                f"--train: more than {MOST_LABELS:,} labels, such as {shown}, which are texts or amounts; name the key "
                "of the label, or the labels with --labels"
            )
        if len(self.seen) < 2:
            found = f"{len(self.seen)}: {shown}" if self.seen else "none"
            why = self.first_reject or ("" if self.seen or self.has_lists else "; are its files empty?")
            raise InputError(f"--train: needs two labels or more, has {found}{why}")
        return sorted(self.seen)

    def problem_type(self) -> str:
        """Tell which of :data:`PROBLEM_TYPES` it is: several labels with any list, amounts with numbers alone."""
        if self.has_lists:
            return SEVERAL
        if not self.seen or not all(map(_NUMBER.fullmatch, self.seen)):
            return ONE
        if len(self.seen) > MOST_LABELS or not all(float(label).is_integer() for label in self.seen):
            return AMOUNT
        if not all(label.lstrip("+-").isdecimal() for label in self.seen):
            raise InputError(
                f"--train: labels such as {', '.join(sorted(self.seen)[:3])} may be classes or amounts; say "
                f"--problem-type {ONE} or {AMOUNT}"
            )
        return ONE


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
    text = "one label, several or none, or an amount (default: lists and fractions in train tell)"
    group.add_argument("--problem-type", choices=PROBLEM_TYPES, help=text)
    options.add_options(parser)
    return parser


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Describe the corpus that the command line names."""
    where = Keys(args.text_key, args.label_key, args.id_key, args.pair_key)
    data = options.find(args, functools.partial(name_of, where=where))
    read = functools.partial(parse, where=where)
    needs_no_look = args.problem_type == AMOUNT or (args.labels and (args.problem_type or "train" not in data.splits))
    found = TrainLabels(frozenset()) if needs_no_look else TrainLabels.find(data.splits, read)
    problem = args.problem_type or (ONE if args.labels and not found.has_lists else found.problem_type())
    labels = [AMOUNT_LABEL] if problem == AMOUNT else args.labels or found.names()
    settings = {key: value for key, value in asdict(where).items() if value != getattr(USUAL, key)} | data.settings
    table = options.with_notes(task_table, data)
    return corpus_of(
        labels,
        problem,
        name="labelled_text",
        splits=options.annotated(data.splits, read),
        parse=read,
        settings=settings,
        inputs=data.inputs,
        table=table if problem == ONE else with_lines(table, [f"problem type: {problem}"]),
    )


main = functools.partial(command.main, make_parser, make_corpus)
