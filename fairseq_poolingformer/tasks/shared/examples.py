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
MAX_ANSWER_LENGTH = 30  # tokens of a predicted answer (ICML 2021, §3.2)


@dataclass(frozen=True)
class Symbols:
    """Indices of the dictionary that segments are built with; ``marks`` has those of the task."""

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
    """The examples of a split; a task subclasses it.

    Those of most tasks are made of the arrays of a split, ``symbols`` of the dictionary, ``max_positions``, tokens of a
    segment at most, ``max_segments``, beyond which an example is left out (0: no limit), and ``use_global``, whether
    the tokens that the task names are global.

    Attributes:
        sizes: (n,) tokens of all segments of each example together.
    """

    sizes: np.ndarray

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

    @property
    def known(self) -> np.ndarray:
        """(n,) bool, False at examples whose targets are not known; a validation split needs a known one."""
        return np.ones(len(self), bool)

    def set_epoch(self, epoch: int) -> None:
        """Take the epoch's number; only for some tasks what is read depends on it."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.sizes)


def cut_questions(questions: Sequences, max_length: int) -> np.ndarray:
    """(n,) int64 tokens that are read of each question; says how many are cut."""
    sizes = questions.sizes.astype(np.int64)
    if longer := np.count_nonzero(sizes > max_length):
        logger.info("%s: %d of %d questions are cut to %d tokens", questions.prefix, longer, len(sizes), max_length)
    return np.minimum(sizes, max_length)


def cut(size: int, room: int, max_pieces: int = 0, overlap: int = 0) -> list[tuple[int, int]]:
    """Cut a document into pieces; the last one is the first that reaches its end."""
    if room <= overlap or overlap < 0:
        raise ValueError(f"room must be more than overlap, which is 0 or more; got {room} and {overlap}")
    spans = [(start, min(start + room, size)) for start in range(0, max(size - overlap, 1), room - overlap)]
    return spans[:max_pieces] if max_pieces else spans


def count_pieces(sizes: np.ndarray, room: np.ndarray | int, max_pieces: int = 0, overlap: int = 0) -> np.ndarray:
    """(n,) how many pieces :func:`cut` makes of each document."""
    counts = np.maximum(-(-(np.asarray(sizes, np.int64) - overlap) // (np.asarray(room, np.int64) - overlap)), 1)
    return np.minimum(counts, max_pieces) if max_pieces else counts


def mark_spans(spans: np.ndarray, begin: int, end: int, offset: int, size: int) -> dict[str, np.ndarray]:
    """Make the targets of a segment that holds a part of a document."""
    held = spans[(spans[:, 0] >= begin) & (spans[:, 1] <= end)] - begin + offset
    first, last = np.zeros((2, size), np.int64)
    np.bitwise_or.at(first, held[:, 0], 1 << np.minimum(held[:, 1] - held[:, 0] - 1, 62))
    last[held[:, 1] - 1] = 1
    return {"first": first, "last": last}
