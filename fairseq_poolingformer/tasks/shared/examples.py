"""The interface of a split whose documents are cut into segments when they are read.

A segment is what goes through the encoder at once. All segments of an example are in one batch, since its loss needs
them together: a head joins what it finds in each.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fairseq_poolingformer.text.sequences import Sequences

logger = logging.getLogger(__name__)

MAX_QUESTION_LENGTH = 64  # tokens of a question that is followed by a document


@dataclass(frozen=True)
class Symbols:
    """Indices of the dictionary that segments are built with; ``marks`` has those of :data:`~.text.marks.MARKS`."""

    bos: int
    eos: int
    pad: int
    marks: Mapping[str, int]


@dataclass(frozen=True)
class Segment:
    """A piece of an example.

    Attributes:
        tokens: (T,) dictionary indices.
        global_mask: (T,) bool, True at global tokens.
        inputs: (T,) integers for each argument of the head that has one value a token; padding is 0.
        targets: (T,) integers for each target that has one value a token; padding is 0.
    """

    tokens: np.ndarray
    global_mask: np.ndarray
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    targets: Mapping[str, np.ndarray] = field(default_factory=dict)


class Examples(ABC):
    """The examples of a split; a task subclasses it."""

    @property
    @abstractmethod
    def sizes(self) -> np.ndarray:
        """(n,) tokens of all segments of each example together."""

    @abstractmethod
    def segments(self, example: int) -> list[Segment]:
        """Cut an example; it has one segment at least."""

    def inputs(self, example: int) -> dict[str, int | np.ndarray]:
        """Further arguments of the head: a batch has integers as (B,), arrays as a list of B tensors."""
        return {}

    def targets(self, example: int) -> dict[str, int | np.ndarray]:
        """Targets of the whole example, in a batch as :meth:`inputs`."""
        return {}

    @property
    def trainable(self) -> np.ndarray:
        """(n,) bool, True at examples that training and its validation use; prediction uses all of them."""
        return np.ones(len(self), bool)

    def set_epoch(self, epoch: int) -> None:  # noqa: B027
        """Take the epoch's number; only for some tasks what is read depends on it."""

    def __len__(self) -> int:
        return len(self.sizes)


def cut_questions(questions: Sequences, max_length: int) -> np.ndarray:
    """(n,) int64 tokens that are read of each question; says how many are cut."""
    sizes = questions.sizes.astype(np.int64)
    if longer := np.count_nonzero(sizes > max_length):
        logger.info("%s: %d of %d questions are cut to %d tokens", questions.prefix, longer, len(sizes), max_length)
    return np.minimum(sizes, max_length)


def cut(size: int, room: int, max_pieces: int = 0, overlap: int = 0) -> list[tuple[int, int]]:
    """Cut a document into pieces; the last one is the first that reaches its end.

    Args:
        size: tokens of the document.
        room: tokens of a piece at most.
        max_pieces: leave out what is beyond so many pieces; 0 for no limit.
        overlap: tokens that a piece has in common with the one before.

    Returns:
        Half-open spans of tokens; an empty document has one.

    Raises:
        ValueError: there is no room.
    """
    if room <= overlap or overlap < 0:
        raise ValueError(f"room must be more than overlap, which is 0 or more; got {room} and {overlap}")
    spans = [(start, min(start + room, size)) for start in range(0, max(size - overlap, 1), room - overlap)]
    return spans[:max_pieces] if max_pieces else spans


def count_pieces(sizes: np.ndarray, room: np.ndarray | int, max_pieces: int = 0, overlap: int = 0) -> np.ndarray:
    """(n,) how many pieces :func:`cut` makes of each document."""
    counts = np.maximum(-(-(np.asarray(sizes, np.int64) - overlap) // (np.asarray(room, np.int64) - overlap)), 1)
    return np.minimum(counts, max_pieces) if max_pieces else counts
