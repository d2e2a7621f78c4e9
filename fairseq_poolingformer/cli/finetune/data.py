"""What a model is trained on: records as people have them, divided by equal text, with what is suspicious in them."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any

from fairseq_poolingformer.preprocess.guess import Guess, guess
from fairseq_poolingformer.preprocess.pipeline.findings import SplitLook, as_text, findings, fold, look
from fairseq_poolingformer.preprocess.pipeline.splits import hash_of
from fairseq_poolingformer.text.labels import ONE

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

    def __post_init__(self) -> None:
        entries = self.found.corpus.entries
        self.task = self.found.purpose.name  # a key of PURPOSES
        self.labels, self.problem = list(entries.get("labels", ())), entries.get("problem_type", ONE)

    @classmethod
    def read(cls, args: argparse.Namespace, flags: Sequence[str], known: Collection[str]) -> Data:
        """Read all examples; ``flags`` say how, ``known`` are the command's own ones."""
        data = cls(args.data, guess(args.data, flags, args.task, known))
        data.looks = look(data.found.corpus, kept=data.splits)
        for split, seen in data.looks.items():
            data._check(split, seen, args.max_reject_fraction)
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

    def _check(self, split: str, seen: SplitLook, most_rejected: float) -> None:
        examples, reasons = self.splits.get(split, []), seen.rejected
        if self.found.corpus.unique_ids:
            own: dict[str, Any] = {}
            for one in examples:
                if own.setdefault(one.id, one) is not one:
                    seen.reject(f"id that was there before: {one.id[:60]}", split)
            self.splits[split] = list(own.values())
        lacking = [reason for reason in reasons if split == "test" and reason.startswith(WITHOUT_REFERENCE)]
        if without := sum(reasons.pop(reason) for reason in lacking):
            self.notes.append(f"{split}: {without:,} documents have no reference and are left out")
        rejected, total = reasons.total(), reasons.total() + len(self.splits.get(split, []))
        if rejected > most_rejected * total:
            place = seen.rejects[next(iter(reasons))].removeprefix(f"{self.name}, ")
            raise ValueError(
                f"{self.name}: {rejected:,} of {total:,} records of {split} cannot be used, such as "
                f"{shorten(place, 60, placeholder=' …')}; correct them, or raise --max-reject-fraction"
            )

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
