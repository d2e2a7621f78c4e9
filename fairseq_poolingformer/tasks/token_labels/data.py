"""Documents with a label for each word: examples, and figures of entities, as conlleval counts them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np

from fairseq_poolingformer.tasks.shared.answers import compared
from fairseq_poolingformer.tasks.shared.estimates import Statistic, shares, statistics_of_shares
from fairseq_poolingformer.tasks.shared.examples import Segment, WordExamples, WordSplit
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.columns import documents
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.dictionary import replace_lone_surrogates
from fairseq_poolingformer.text.json_values import read_object
from fairseq_poolingformer.text.labels import id_of
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import refuse


@dataclass(frozen=True)
class TokenLabelSplit(WordSplit):
    """One split; ``label`` has a number in the labels of ``corpus.json`` for each word, or nothing."""

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer-preprocess token_labels",
        ids=("document",),
        numbers=("word", "sentence", "label"),
        texts=("id", "words"),
    )
    label: Sequences

    def check(self) -> None:
        super().check()
        sizes = self.label.sizes
        refuse(self.label, (sizes != 0) & (sizes != self.word.sizes), "not one label for each word")


class TokenLabelExamples(WordExamples):
    """The documents of a split; the first piece of each word has its label.

    In a segment ``word`` is k at the first piece of a document's k-th word, counted from 1; ``label`` is one more than
    the label's number there, and ``begins`` is 1 at the first word of a sentence; all are 0 elsewhere.
    """

    split: TokenLabelSplit

    @property
    def known(self) -> np.ndarray:
        return self.split.label.sizes > 0

    def segments(self, example: int) -> list[Segment]:
        starts, _ = self._word_borders(example)
        sentence, label = self.split.sentence[example], self.split.label[example]
        columns = np.zeros((3, len(self.split.document[example])), np.int64)
        columns[0, starts] = np.arange(len(starts)) + 1
        columns[1, starts] = label + 1 if len(label) else 0
        columns[2, starts[np.cumsum(sentence) - sentence]] = 1
        found = []
        for segment, place in zip(super().segments(example), itertools.pairwise(self._stretch(example)), strict=True):
            word, label, begins = np.pad(columns[:, slice(*place)], ((0, 0), (1, 1)))
            found.append(replace(segment, inputs={"word": word}, targets={"label": label, "begins": begins}))
        return found


LONGEST = 2**30  # bytes of a document

Entity = tuple[int, int, str]  # the first word, the one after the last, and the kind


@dataclass(frozen=True)
class LabelledWords:
    """A document's words, their labels, and how many words each sentence has."""

    tokens: Sequence[str]
    labels: Sequence[str]
    sentences: Sequence[int]


def entities(labels: Sequence[str], sentences: Sequence[int]) -> set[Entity]:
    """Find the entities that labels such as B-PER, I-PER, O, and E-PER and S-PER say.

    An entity lies in one sentence. It begins at B, at S and at any other label than O which does not go on with the
    kind before it, as conlleval has it.
    """
    found, first, start = set(), 0, 0
    for size in sentences:
        parts = [("O", ""), *map(_parts, labels[first : first + size]), ("O", "")]
        for place, ((former, former_kind), (tag, kind)) in enumerate(pairwise(parts), first):
            changes = former_kind != kind
            if former in ("E", "S") or (former in ("B", "I") and tag in ("B", "S", "O")) or (former != "O" and changes):
                found.add((start, place, former_kind))
            begins = former in ("E", "S", "O") and tag in ("E", "I")
            if begins or tag in ("B", "S") or (tag != "O" and changes):
                start = place
        first += size
    return found


def _parts(label: str) -> tuple[str, str]:
    tag, mark, kind = label.partition("-")
    return (tag, kind) if mark else (label, "")


@dataclass(frozen=True)
class EntityCounts:
    """Entities by kind: those that are right, that were found, and that are there."""

    right: Counter[str]
    found: Counter[str]
    there: Counter[str]

    @classmethod
    def of(cls, pairs: Iterable[tuple[set[Entity], set[Entity]]]) -> EntityCounts:
        """Count the found and the true entities of each document."""
        counts = cls(Counter(), Counter(), Counter())
        for found, there in pairs:
            for counter, chosen in ((counts.right, found & there), (counts.found, found), (counts.there, there)):
                counter.update(kind for _, _, kind in chosen)
        return counts

    def figures(self, kind: str | None = None) -> dict[str, float]:
        """Precision, recall and F1 in percent, of all kinds or of one."""
        each = (self.right, self.found, self.there)
        return shares(*(counts.total() if kind is None else counts[kind] for counts in each))


def read_gold(path: Path) -> dict[str, LabelledWords]:
    """Read the labels of every document: lines of JSON with ``tokens`` and ``labels``, or CoNLL's columns."""
    found: dict[str, LabelledWords] = {}
    with open(path, "rb") as content:
        is_json = content.peek(64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
        lines = enumerate(content, 1) if is_json else documents(content, str(path), LONGEST)
        for number, line in lines:
            if isinstance(line, bytes) and not line.strip():
                continue
            with json_values.placed(path, f"line {number}"):
                fields = read_object(line) if isinstance(line, bytes) else line
                if not isinstance(fields, dict):
                    raise ValueError(fields or "too long")
                name = id_of(fields, str(path), number)
                if name in found:
                    raise ValueError(f"id {name} is there twice")
                found[name] = _labelled(fields)
    return found


def _labelled(fields: dict) -> LabelledWords:
    tokens, labels = (json_values.list_of(fields, key) for key in ("tokens", "labels"))
    if len(tokens) != len(labels) or not all(isinstance(label, str) for label in labels):
        raise ValueError(f"{len(tokens)} tokens and {len(labels)} labels; each token must have one, which is a string")
    sentences = json_values.list_of(fields, "sentences") if "sentences" in fields else [len(tokens)]
    if not all(type(size) is int and size >= 0 for size in sentences) or sum(sentences) != len(tokens):
        raise ValueError(f"'sentences' must be whole numbers whose sum is {len(tokens)}, the number of tokens")
    return LabelledWords([replace_lone_surrogates(str(token)) for token in tokens], labels, sentences)


def _share_of_words(counts: np.ndarray) -> float:
    right, words = counts.sum(axis=0)
    return 100 * float(right / max(words, 1))


def score(gold: Sequence[Path], predictions: Path) -> dict[str, float | int]:
    """Compare predicted labels with the released ones.

    Only documents with a prediction count, since a split may be a share of a released file.
    """
    there, found = compared(gold, predictions, read_gold, read_gold)
    for name, document in found.items():
        if len(there[name].labels) != len(document.labels):
            sizes = f"{len(document.labels)} words, and the gold files have {len(there[name].labels)} of it"
            raise ValueError(f"{predictions}, {name}: {sizes}")
        words = zip(document.tokens, there[name].tokens, strict=True)
        for number, (word, right) in enumerate(words, 1):
            if word != right:
                raise ValueError(f"{predictions}, {name}: word {number} is {word!r}, and the gold files have {right!r}")
    return figures(there, {name: document.labels for name, document in found.items()})


def figures(there: Mapping[str, LabelledWords], found: Mapping[str, Sequence[str]]) -> dict[str, float | int]:
    """The figures of predicted labels by id, given the documents with the right ones."""
    pairs = [(labels, there[name]) for name, labels in found.items()]
    each = [(entities(own, right.sentences), entities(right.labels, right.sentences)) for own, right in pairs]
    counts = EntityCounts.of(each)
    same = [[one == other for one, other in zip(own, right.labels, strict=True)] for own, right in pairs]
    words = np.array([[sum(one), len(one)] for one in same], float).reshape(-1, 2)
    values: dict[str, float | int] = {"accuracy": Statistic.of(words, _share_of_words)}
    values |= statistics_of_shares(np.array([[len(a & b), len(a), len(b)] for a, b in each], int).reshape(-1, 3))
    for kind in sorted({*counts.found, *counts.there}):
        values |= {f"{name}_{kind}": value for name, value in counts.figures(kind).items()}
    return values | {"examples": len(found), "without_prediction": len(there) - len(found)}
