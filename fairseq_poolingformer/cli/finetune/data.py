"""Training data: documents with a summary or a label each, divided by equal text, with what is suspicious in them."""

from __future__ import annotations

import argparse
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from textwrap import shorten
from typing import Any

from fairseq_poolingformer.cli.finetune.base import LABELS, SUMMARIES
from fairseq_poolingformer.preprocess.labelled_text import LabelledDocument
from fairseq_poolingformer.preprocess.pipeline.findings import Finding, SplitLook, as_text, findings, fold, look
from fairseq_poolingformer.preprocess.pipeline.records import Example, InputError, Record, Reject, parsed
from fairseq_poolingformer.preprocess.pipeline.run import Corpus
from fairseq_poolingformer.preprocess.pipeline.splits import hash_of
from fairseq_poolingformer.preprocess.pipeline.task_corpus import from_object
from fairseq_poolingformer.preprocess.records import keys, options
from fairseq_poolingformer.preprocess.records.sources import expand, splits_of
from fairseq_poolingformer.tasks.classification.data import ClassificationSplit, label_of
from fairseq_poolingformer.tasks.summarization import PAIRS
from fairseq_poolingformer.text.json_values import BadLine, type_name
from fairseq_poolingformer.text.labels import id_of

TEXTS = ("document", "text", "article")
TARGETS = {"summary": SUMMARIES, "abstract": SUMMARIES, "label": LABELS}
SAMPLE = 200  # records whose columns are looked at
FEWEST = 10  # examples to divide
MOST_LABELS = 1000
WITHOUT_TARGET = ("no summary", "empty summary", "no label")  # reasons, which are no fault in test
SHOWN = 3  # labels in a finding
# options of preprocessing: sources name the files, and examples are divided by their texts
UNDIVIDED = {"train": None, "valid": None, "test": None, "splits": None, "valid_share": 0, "test_share": 0}


@dataclass
class Data:
    """The examples of each split, with what is to be learned."""

    name: str
    task: str  # summarization or classification
    text: str  # its column, or key path
    target: str
    corpus: Corpus
    splits: dict[str, list[Any]] = field(default_factory=dict)
    looks: dict[str, SplitLook] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # sentences for people
    labels: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, args: argparse.Namespace) -> Data:
        """Read all examples."""
        if args.valid or args.test:
            named = {"train": [args.data], "valid": args.valid, "test": args.test}
            sources = {split: expand(patterns) for split, patterns in named.items() if patterns}
        else:
            sources = splits_of(args.data, unnamed=True)
        if "train" not in sources:
            raise InputError(f"{args.data}: only {' and '.join(sorted(sources)) or 'nothing'} in it, no training data")
        records = options.find(argparse.Namespace(**vars(args) | UNDIVIDED), str, sources=sources)
        sample = _sample(args.data, records.splits["train"].records())
        standard = [name for name, task in TARGETS.items() if args.task in (None, task)]
        target = _named(args.data, "target", args.target_column, standard, sample)
        text = _named(args.data, "text", args.text_column, TEXTS, sample)
        if (task := args.task or TARGETS.get(target)) is None:
            raise InputError(f"{args.data}: is {target} a summary or a label? give --task {SUMMARIES} or {LABELS}")
        parse = partial(example_of, text=text, target=target, task=task)
        layout = PAIRS if task == SUMMARIES else ClassificationSplit.layout
        corpus = Corpus("finetune", records.splits, parse, settings={}, inputs=records.inputs, layout=layout)
        data = cls(args.data, task, text, target, corpus)
        data.looks = look(corpus, kept=data.splits)
        for split, split_look in data.looks.items():
            data._check(split, split_look, args.max_reject_fraction)
        if task == LABELS:
            data.labels = labels = sorted({example.label for example in data.splits.get("train", [])})
            if not 2 <= len(labels) <= MOST_LABELS:
                shown = f", such as {', '.join(labels[:SHOWN])}" if labels else ""
                needs = f"needs 2 to {MOST_LABELS:,}; name another column"
                raise ValueError(f"{data.name}: {len(labels):,} label{'s' * (len(labels) != 1)}{shown}; {needs}")
        if "valid" not in data.splits:
            data._divide({split: vars(args)[f"{split}_share"] for split in ("test", "valid")}, args.split_seed)
        for split in ("train", "valid"):
            if not data.splits.get(split):
                raise ValueError(f"{args.data}: no examples of {split}; name files with --{split}")
        return data

    def _check(self, split: str, split_look: SplitLook, most_rejected: float) -> None:
        reasons, examples = split_look.rejected, self.splits.setdefault(split, [])
        if self.task == LABELS:  # whose figures are by id
            by_id: dict[str, Any] = {}
            for example in examples:
                if by_id.setdefault(example.id, example) is not example:
                    split_look.reject(f"id that was there before: {example.id[:60]}", split)
            self.splits[split] = list(by_id.values())
        lacking = [reason for reason in reasons if split == "test" and reason.startswith(WITHOUT_TARGET)]
        if without := sum(reasons.pop(reason) for reason in lacking):
            self.notes.append(f"{split}: {without:,} documents have no reference and are left out")
        rejected, total = reasons.total(), reasons.total() + len(self.splits[split])
        if rejected > most_rejected * total:
            place = split_look.rejects[next(iter(reasons))].removeprefix(f"{self.name}, ")
            raise ValueError(
                f"{self.name}: {rejected:,} of {total:,} records of {split} cannot be used, such as "
                f"{shorten(place, 60, placeholder=' …')}; correct them, or raise --max-reject-fraction"
            )

    def _divide(self, shares: dict[str, float], seed: int) -> None:
        """Take missing splits out of train: texts with all their examples, by their hashes within each label."""
        taken = {split: share for split, share in shares.items() if split not in self.splits and share}
        train = self.splits["train"]
        texts = [fold(example.texts[0]) for example in train]
        label_of_text = dict(
            zip(reversed(texts), (getattr(example, "label", "") for example in reversed(train)), strict=True)
        )
        order = sorted(label_of_text, key=lambda text: hash_of(b"%d " % seed + text.encode("utf-8", "replace")))
        strata: dict[str, list[str]] = {}
        for text in order:
            strata.setdefault(label_of_text[text], []).append(text)
        split_of = dict.fromkeys(order, "train")
        for split, share in taken.items():
            counts = _shared_out(max(1, round(share * len(order))), [len(stratum) for stratum in strata.values()])
            for stratum, count in zip(strata.values(), counts, strict=True):
                split_of |= dict.fromkeys(stratum[:count], split)
                del stratum[:count]
        if len(texts) < FEWEST or not any(strata.values()) or "valid" not in taken:
            few = f"{len(texts)} examples of {len(split_of)} different texts are too few to divide"
            raise ValueError(f"{self.name}: {few}; name files with --valid and --test, or give {FEWEST} or more")
        for split in ("train", *taken):
            self.splits[split] = [
                example for example, text in zip(train, texts, strict=True) if split_of[text] == split
            ]
        percent = " and ".join(f"{100 * share:g} % as {split}" for split, share in taken.items())
        of_each = " of each label" if self.task == LABELS else ""
        self.notes.append(f"no file says {' or '.join(taken)}: by a hash of the texts, {percent}{of_each}")

    @property
    def evaluated(self) -> str:
        """The split of the figures."""
        return "test" if self.splits.get("test") else "valid"

    def report(self) -> str:
        """Report of the data for people: counts, lengths, suspicious examples."""
        counts = ", ".join(f"{len(examples):,} {split}" for split, examples in self.splits.items())
        suspicious = [*findings(self.corpus, self.looks)]
        if self.task == LABELS:
            suspicious += findings_of_labels(self.looks["train"].labels)
        heads = [f"{self.task}, columns: {self.text} to {self.target}", f"examples: {counts}"]
        return "\n".join([*heads, *self.notes, *as_text(self.name, suspicious)])


def to_predict(data: str, args: argparse.Namespace, split: str | None) -> tuple[list[Example], list[str]]:
    """The examples and the rejects of records of which the text alone is read."""
    sources = expand([data]) if split is None else splits_of(data, unnamed=False).get(split)
    if not sources:
        raise InputError(f"{data}: no --subset {split} in it; leave it out to predict all records")
    reading = options.find(
        argparse.Namespace(**vars(args) | UNDIVIDED | {"data": data, "split_key": None}),
        str,
        sources={"train": sources},
    )
    records = reading.splits["train"].records
    parse = partial(example_of, text=_named(data, "text", args.text_column, TEXTS, _sample(data, records())))
    examples, rejects = [], []
    for record in records():
        example = parsed(record, parse)
        if isinstance(example, Reject):
            rejects.append(f"{record.file}, line {record.line}: {example.reason}")
        else:
            examples.append(example)
    return examples, rejects


def example_of(record: Record, text: str, target: str = "", task: str = "") -> Example | Reject:
    """A document with its summary or label, or without where no column is the target."""

    @from_object
    def make(fields: dict) -> Example:
        name = id_of(fields, record.file, record.line)
        document = _text(fields, text, "text")
        if not target:
            return Example(name, (document,))
        if task == SUMMARIES:
            return Example(name, (document, _text(fields, target, "summary")))
        return LabelledDocument(name, (document,), _label(fields, target))

    return make(record)


def _text(fields: dict, column: str, what: str) -> str:
    value = _value(fields, column, what)
    value = "\n".join(value) if isinstance(value, list) and all(isinstance(part, str) for part in value) else value
    if not isinstance(value, str):
        raise BadLine(f"wrong type: {column} is {type_name(value)}, not a string or a list of strings")
    if not value.strip():
        raise BadLine(f"empty {what}: {column}")
    return value.strip()


def _label(fields: dict, column: str) -> str:
    label = label_of({"label": _value(fields, column, "label")})
    if isinstance(label, tuple):
        raise BadLine(f"several labels: {column} must have one, has {len(label)}")
    if isinstance(label, float):
        return f"{label:.0f}" if label.is_integer() else repr(label)
    return label


def _value(fields: dict, column: str, what: str) -> object:
    value = keys.under(fields, column)
    if value is None:
        raise BadLine(f"no {what}: the line lacks {column}; its keys are {keys.names_of(fields)}")
    return value


def _sample(name: str, records: Iterator[Record]) -> list[dict]:
    """The first records, without what is no object."""
    sample = list(itertools.islice(records, SAMPLE))
    if not (objects := [fields for record in sample if (fields := keys.parsed_object(record.data)) is not None]):
        broken = next(
            (f"{record.file}, line {record.line}: {record.problem}" for record in sample if record.data is None), ""
        )
        raise InputError(broken or f"{name}: no records with columns in it")
    return objects


def _named(data: str, what: str, column: str | None, standard: Sequence[str], sample: list[dict]) -> str:
    there = dict.fromkeys(key for fields in sample for key, value in fields.items() if value is not None)
    if column is not None:
        columns = [column] * any(keys.under(fields, column) is not None for fields in sample)
    else:
        columns = [name for name in standard if name in there]
    if len(columns) != 1:
        wrong = f"{' and '.join(columns)} may be it" if columns else f"no column {column or ', '.join(standard)}"
        raise InputError(f"{data}: {wrong}; its columns are {keys.names_of(there)}; name one with --{what}-column")
    return columns[0]


def _shared_out(total: int, sizes: list[int]) -> list[int]:
    """Divide a number in proportion to sizes, by largest remainders; of several strata each keeps one."""
    exact = [total * size / sum(sizes) for size in sizes]
    counts = [int(share) for share in exact]
    largest = sorted(range(len(sizes)), key=lambda place: counts[place] - exact[place])
    for place in largest[: total - sum(counts)]:
        counts[place] += 1
    return [min(count, size - 1) if len(sizes) > 1 else count for count, size in zip(counts, sizes, strict=True)]


_AMOUNT = re.compile(r"[+-]?\d*[.,]\d+|[+-]?\d+([.,]\d+)? ?%")
_LIST = re.compile(r"\[.*\]|\{.*\}", re.DOTALL)


def findings_of_labels(labels: Counter[str]) -> Iterator[Finding]:
    """Labels that are likely to be something else."""
    names = sorted(labels)
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault("".join(name.casefold().split()), []).append(name)
    many = names if 2 * len(names) > labels.total() else []
    for kind, suspicious, remedy in (
        ("almost as many labels as documents", many, "name another column with --target-column"),
        ("amounts", list(filter(_AMOUNT.fullmatch, names)), "make classes of them: each number is a label of its own"),
        ("lists as text", list(filter(_LIST.fullmatch, names)), "leave one label a document: each list is a label"),
        (
            "labels that differ in case or blanks",
            [" and ".join(map(repr, same)) for same in alike.values() if len(same) > 1],
            "write each in one way: each spelling is a label of its own",
        ),
    ):
        if suspicious:
            more = ", …" * (len(suspicious) > SHOWN)
            yield Finding(kind, f"train: {', '.join(suspicious[:SHOWN])}{more}", remedy)
