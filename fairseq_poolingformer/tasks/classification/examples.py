"""Documents with one label each: IMDB, Hyperpartisan, and any other.

A segment is ``<s> document </s>``, and ``<s>`` is global (Longformer, §6.3). A document that is longer than a segment
has several, which the head joins.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fairseq_poolingformer.tasks.shared.examples import Examples, Segment, Symbols, count_pieces, cut
from fairseq_poolingformer.text.data_folder import DataFolder, Layout
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse

NO_LABEL = -1


@dataclass(frozen=True)
class ClassificationSplit(Split):
    """One split; ``label`` has a number in the labels of ``corpus.json``, or is empty where the input has none."""

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer-preprocess imdb, hyperpartisan or labelled_text", ids=("document",), numbers=("label",)
    )

    document: Sequences
    label: Sequences

    def check(self) -> None:
        refuse(self.label, self.label.sizes > 1, "more than one label")


def read_labels(folder: Path) -> list[str]:
    """Return the names of a data folder's labels.

    Raises:
        FileNotFoundError: the folder is not finished.
        ValueError: it is a folder of another kind.
    """
    layout = ClassificationSplit.layout
    labels = DataFolder(Path(folder), layout).corpus().get("labels")
    if not labels:
        raise ValueError(f"{folder}: no labels in corpus.json; make the folder with {layout.made_with}")
    return labels


class ClassificationExamples(Examples):
    """The examples of a split.

    Args:
        split: the arrays.
        symbols: of the dictionary.
        max_positions: tokens of a segment at most.
        max_segments: leave out what is beyond so many segments of a document; 0 for no limit.
        use_global: make ``<s>`` global.
    """

    def __init__(
        self,
        split: ClassificationSplit,
        symbols: Symbols,
        max_positions: int,
        max_segments: int = 0,
        use_global: bool = True,
    ) -> None:
        self.split, self.symbols, self.use_global = split, symbols, use_global
        self.room, self.max_segments = max_positions - 2, max_segments
        counts = count_pieces(split.document.sizes, self.room, max_segments)
        self.sizes = np.minimum(split.document.sizes, counts * self.room) + 2 * counts

    def segments(self, example: int) -> list[Segment]:
        document = self.split.document[example]
        return [self._segment(document[first:end]) for first, end in cut(len(document), self.room, self.max_segments)]

    def _segment(self, document: np.ndarray) -> Segment:
        tokens = np.concatenate([[self.symbols.bos], document, [self.symbols.eos]]).astype(np.int64)
        return Segment(tokens, (np.arange(len(tokens)) == 0) & self.use_global)

    def targets(self, example: int) -> dict[str, int | np.ndarray]:
        label = self.split.label[example]
        return {"label": int(label[0]) if len(label) else NO_LABEL}
