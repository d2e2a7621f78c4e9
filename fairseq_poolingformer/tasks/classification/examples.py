"""Documents with a label, several labels or an amount each: IMDB, Hyperpartisan, and any other.

A segment is ``<s> document </s>``, and ``<s>`` is global (Longformer, §6.3). A document that is longer than a segment
has several, which the head joins.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairseq_poolingformer.tasks.shared.examples import Examples, Segment, Symbols, count_pieces, cut
from fairseq_poolingformer.text import labels
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.labels import AMOUNT, ONE, SEVERAL
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse

NO_LABEL = -1


@dataclass(frozen=True)
class ClassificationSplit(Split):
    """One split; ``label`` is empty where the input has none.

    Else it has a number in the labels of ``corpus.json``; of several labels, for each in turn 1 or 0, whether it is the
    document's; or the bits of an amount, a float32.
    """

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer-preprocess imdb, hyperpartisan or labelled_text", ids=("document",), numbers=("label",)
    )

    document: Sequences
    label: Sequences


read_labels = functools.partial(labels.read_labels, layout=ClassificationSplit.layout)


def amounts_as_integers(amounts: np.ndarray) -> np.ndarray:
    """The bits of (n,) numbers as float32, to be stored among integers."""
    return np.asarray(amounts, np.float32).view(np.int32)


class ClassificationExamples(Examples):
    """The examples of a split."""

    def __init__(
        self,
        split: ClassificationSplit,
        symbols: Symbols,
        max_positions: int,
        max_segments: int = 0,
        use_global: bool = True,
        problem: str = ONE,
        num_labels: int = 0,
    ) -> None:
        self.problem, self.num_labels = problem, num_labels
        sizes, wanted = split.label.sizes, num_labels if problem == SEVERAL else 1
        refuse(split.label, (sizes != 0) & (sizes != wanted), f"not {wanted} numbers for a {problem}")
        self.split, self.symbols, self.use_global = split, symbols, use_global
        self.room, self.max_segments = max_positions - 2, max_segments
        counts = count_pieces(split.document.sizes, self.room, max_segments)
        self.sizes = np.minimum(split.document.sizes, counts * self.room) + 2 * counts

    @property
    def known(self) -> np.ndarray:
        return self.split.label.sizes > 0

    def segments(self, example: int) -> list[Segment]:
        document = self.split.document[example]
        return [self._segment(document[first:end]) for first, end in cut(len(document), self.room, self.max_segments)]

    def _segment(self, document: np.ndarray) -> Segment:
        tokens = np.concatenate([[self.symbols.bos], document, [self.symbols.eos]]).astype(np.int64)
        return Segment(tokens, (np.arange(len(tokens)) == 0) & self.use_global)

    def targets(self, example: int) -> dict[str, int | np.ndarray]:
        """``label``, NO_LABEL if unknown; ``labels``, (L,) 0 or 1, or NO_LABEL; or ``amount``, (1,), NaN if unknown."""
        label = self.split.label[example]
        if self.problem == SEVERAL:
            return {"labels": np.array(label) if len(label) else np.full(self.num_labels, NO_LABEL)}
        if self.problem == AMOUNT:
            amount = np.array(label, np.int32).view(np.float32) if len(label) else np.full(1, np.nan)
            return {"amount": amount.astype(np.float64)}  # which --fp16 leaves alone
        return {"label": int(label[0]) if len(label) else NO_LABEL}
