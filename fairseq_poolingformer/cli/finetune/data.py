"""What a model is trained on: records as people have them, divided by equal text, with what is suspicious in them."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any

from fairseq_poolingformer.preprocess.guess import Guess, guess
from fairseq_poolingformer.preprocess.pipeline.findings import SplitLook, as_text, findings, fold
from fairseq_poolingformer.preprocess.pipeline.records import Example, Reject, parsed
from fairseq_poolingformer.preprocess.pipeline.splits import hash_of
from fairseq_poolingformer.text.labels import AMOUNT, ONE

FEWEST = 10  # examples to divide
WITHOUT_REFERENCE = ("no summary", "empty summary", "no label", "no answers")  # reasons, which are no fault in test


@dataclass
class Data:
    """The examples of each split, with what is to be learned."""

    name: str
    found: Guess
    splits: dict[str, list[Any]] = field(default_factory=dict)
    looks: dict[str, SplitLook] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # sentences for people
    is_divided: bool = False  # whether a split was taken out of the training examples

    @property
    def task(self) -> str:
        """A key of ``PURPOSES``."""
        return self.found.purpose.name

    @property
    def labels(self) -> list[str]:
        """The names of the labels; empty where there are none."""
        return list(self.found.corpus.entries.get("labels", ()))

    @property
    def problem(self) -> str:
        """One of ``PROBLEM_TYPES``."""
        return self.found.corpus.entries.get("problem_type", ONE)

    @classmethod
    def read(cls, args: argparse.Namespace, flags: Sequence[str], known: Collection[str]) -> Data:
        """Read all examples; ``flags`` say how, ``known`` are the command's own ones."""
        data = cls(args.data, guess(args.data, flags, args.task, known))
        for split in data.found.corpus.splits:
            data._read(split, args.max_reject_fraction)
        if "valid" not in data.splits:
            data._divide({split: vars(args)[f"{split}_share"] for split in ("test", "valid")}, args.split_seed)
        for split in ("train", "valid"):
            if not data.splits.get(split):
                raise ValueError(f"{args.data}: no examples of {split}; name files with --{split}")
        if data.task == "question-answering":
            for split, examples in data.splits.items():
                without = sum(not example.answers for example in examples)
                data.notes.append(f"{split}: {without:,} of {len(examples):,} questions have no answer")
        return data

    def _read(self, split: str, most_rejected: float) -> None:
        corpus, seen, kept = self.found.corpus, SplitLook(), []
        ids: set[str] = set()
        outputs, has_classes, without = len(corpus.layout.outputs), self.problem != AMOUNT, 0
        for record in corpus.splits[split].records():
            example = parsed(record, corpus.parse)
            if isinstance(example, Example) and corpus.unique_ids and example.id in ids:
                example = Reject(f"id that was there before: {example.id[:60]}")
            if isinstance(example, Reject) and split == "test" and example.reason.startswith(WITHOUT_REFERENCE):
                without += 1
            elif isinstance(example, Reject):
                seen.reject(example.reason, f"{record.file}, line {record.line}")
            elif isinstance(example, Example):
                ids.add(example.id)
                seen.add(example, outputs, has_classes)
                kept.append(example)
        rejected = seen.rejected.total()
        if rejected > most_rejected * (rejected + len(kept)):
            first = shorten(next(iter(seen.rejects.values())).removeprefix(f"{self.name}, "), 60, placeholder=" …")
            raise ValueError(
                f"{self.name}: {rejected:,} of {rejected + len(kept):,} records of {split} cannot be used, such as "
                f"{first}; correct them, or raise --max-reject-fraction"
            )
        if without:
            self.notes.append(f"{split}: {without:,} documents have no reference and are left out")
        self.splits[split], self.looks[split] = kept, seen

    def _divide(self, shares: dict[str, float], seed: int) -> None:
        """Take splits that are not there out of train: texts with all their examples, by the order of their hashes."""
        taken = {split: share for split, share in shares.items() if split not in self.splits and share}
        texts = [_text(example) for example in self.splits["train"]]
        order = sorted(set(texts), key=lambda text: hash_of(b"%d " % seed + text.encode("utf-8", "replace")))
        split_of = dict.fromkeys(order, "train")
        for split, share in taken.items():
            count = max(1, round(share * len(split_of)))
            split_of |= dict.fromkeys(order[:count], split)
            order = order[count:]
        if len(texts) < FEWEST or not order or "valid" not in taken:
            few = f"{len(texts)} examples of {len(split_of)} different texts are too few to divide"
            raise ValueError(f"{self.name}: {few}; name files with --valid and --test, or give {FEWEST} or more")
        train, self.is_divided = self.splits["train"], True
        for split in ("train", *taken):
            self.splits[split] = [one for one, text in zip(train, texts, strict=True) if split_of[text] == split]
        percent = " and ".join(f"{100 * share:g} % as {split}" for split, share in taken.items())
        self.notes.append(f"no file says {' or '.join(taken)}: by a hash of the texts, {percent}")

    def columns(self) -> str:
        """Which columns are read, and which are not."""
        found = self.found
        used = f"columns used: {', '.join(found.used) or found.purpose.text}"
        return used + (f"; left out: {', '.join(found.left_out)}" if found.left_out else "")

    def report(self) -> str:
        """What was read and what is suspicious in it, for people."""
        counts = ", ".join(f"{len(examples):,} {split}" for split, examples in self.splits.items())
        looked = as_text(self.name, findings(self.found.corpus, self.looks))
        return "\n".join([f"{self.task}, {self.columns()}", f"examples: {counts}", *self.notes, *looked])


def _text(example: Any) -> str:
    """What decides where an example goes: the text, without the question about it and without a second text."""
    if hasattr(example, "answers"):
        return fold(example.texts[1])
    if hasattr(example, "sentences"):
        return fold(" ".join(example.texts))
    return fold(example.texts[0].removeprefix(getattr(example, "query", "")))
