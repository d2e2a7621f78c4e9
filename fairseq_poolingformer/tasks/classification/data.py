"""Documents with a label: a split and its examples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from fairseq_poolingformer.tasks.shared.examples import Examples, Segment, Symbols, count_pieces, cut
from fairseq_poolingformer.text import labels
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse

NO_LABEL = -1


@dataclass(frozen=True)
class ClassificationSplit(Split):
    """One split; ``label`` has the number of a label, or nothing."""

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer preprocess imdb, hyperpartisan or labelled_text", ids=("document",), numbers=("label",)
    )

    document: Sequences
    label: Sequences


read_labels = partial(labels.read_labels, layout=ClassificationSplit.layout)


class ClassificationExamples(Examples):
    """The examples of a split."""

    def __init__(
        self,
        split: ClassificationSplit,
        symbols: Symbols,
        max_positions: int,
        max_segments: int = 0,
        use_global: bool = True,
    ) -> None:
        refuse(split.label, split.label.sizes > 1, "several labels")
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

    def targets(self, example: int) -> dict[str, int]:
        """``label``, NO_LABEL if unknown."""
        label = self.split.label[example]
        return {"label": int(label[0]) if len(label) else NO_LABEL}
