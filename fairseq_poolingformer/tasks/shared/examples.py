"""The interface of a split whose documents are cut into segments when they are read.

A segment is what goes through the encoder at once. All segments of an example are in one batch, since its loss needs
them together: a head joins what it finds in each.
"""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse, sums

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
    """A piece of an example; ``inputs`` are arguments of the head with one value a token, and so ``targets``."""

    tokens: np.ndarray  # (T,) dictionary indices
    global_mask: np.ndarray  # (T,) bool, True at global tokens
    # (T,) integers by name, of which padding is 0
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    targets: Mapping[str, np.ndarray] = field(default_factory=dict)


class Examples(ABC):
    """The examples of a split; a task subclasses it."""

    # most take a split, the dictionary's symbols, max_positions of a segment, max_segments of an example (0: no limit)
    # and use_global: whether the tokens that the task names are global

    sizes: np.ndarray  # (n,) tokens of all segments of each example together

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


def cut(size: int, room: int, max_pieces: int = 0) -> list[tuple[int, int]]:
    """Cut a document into pieces of ``room`` tokens, 1 or more."""
    spans = [(start, min(start + room, size)) for start in range(0, max(size, 1), room)]
    return spans[:max_pieces] if max_pieces else spans


def count_pieces(sizes: np.ndarray, room: np.ndarray | int, max_pieces: int = 0) -> np.ndarray:
    """(n,) how many pieces :func:`cut` makes of each document."""
    counts = np.maximum(-(-np.asarray(sizes, np.int64) // np.asarray(room, np.int64)), 1)
    return np.minimum(counts, max_pieces) if max_pieces else counts


def mark_spans(spans: np.ndarray, begin: int, end: int, offset: int, size: int) -> dict[str, np.ndarray]:
    """Make the targets of a segment that holds a part of a document."""
    held = spans[(spans[:, 0] >= begin) & (spans[:, 1] <= end)] - begin + offset
    first, last = np.zeros((2, size), np.int64)
    np.bitwise_or.at(first, held[:, 0], 1 << np.minimum(held[:, 1] - held[:, 0] - 1, 62))
    last[held[:, 1] - 1] = 1
    return {"first": first, "last": last}


@dataclass(frozen=True)
class WordSplit(Split):
    """One split; every field has one sequence for each document."""

    document: Sequences  # dictionary ids of its pieces
    word: Sequences  # pieces of each word
    sentence: Sequences  # words of each sentence

    def check(self) -> None:
        for parts, wholes, what in (
            (self.word, self.document, "not the number of pieces for each word"),
            (self.sentence, self.word, "not the number of words for each sentence"),
        ):
            refuse(parts, sums(parts.values, parts.bounds) != wholes.sizes, what)


def cut_document(words: np.ndarray, sentences: np.ndarray, room: int) -> np.ndarray:
    """Cut a document into segments: after a sentence where one fits, else after a word, else after any piece."""
    word_ends = np.cumsum(words, dtype=np.int64)
    sentence_ends = word_ends[np.cumsum(sentences) - 1]
    borders = [0]
    while borders[-1] < word_ends[-1]:
        start = borders[-1]
        end = min(start + room, int(word_ends[-1]))
        for ends in (sentence_ends, word_ends):
            found = int(np.searchsorted(ends, end, side="right"))
            if found and ends[found - 1] > start:
                end = int(ends[found - 1])
                break
        borders.append(end)
    return np.array(borders)


class WordExamples(Examples):
    """Documents as segments ``<s> pieces </s>``; in training, random ``max_segments`` of them (Joshi et al., 2019)."""

    def __init__(
        self,
        split: WordSplit,
        symbols: Symbols,
        max_positions: int,
        max_segments: int = 0,
        seed: int = 1,
        use_global: bool = False,
    ) -> None:
        self.split, self.symbols, self.use_global = split, symbols, use_global
        self.max_segments, self.seed, self.epoch = max_segments, seed, 1
        room = max_positions - 2
        self._borders = [
            cut_document(split.word[number], split.sentence[number], room) for number in range(len(split.word))
        ]
        self.sizes = np.array([self._size(borders, max_positions) for borders in self._borders], np.int64)

    def segments(self, example: int) -> list[Segment]:
        document, symbols = self.split.document[example], self.symbols
        borders = self._stretch(example)
        segments = []
        for start, end in itertools.pairwise(borders):
            tokens = np.concatenate([[symbols.bos], document[start:end], [symbols.eos]])
            segments.append(Segment(tokens, (np.arange(len(tokens)) == 0) & self.use_global))
        return segments

    def _size(self, borders: np.ndarray, max_positions: int) -> int:
        count = len(borders) - 1
        if self.max_segments and count > self.max_segments:
            return self.max_segments * max_positions
        return int(borders[-1]) + 2 * count

    def _stretch(self, example: int) -> np.ndarray:
        """The borders of the segments that this epoch reads."""
        borders = self._borders[example]
        spare = len(borders) - 1 - self.max_segments
        if not self.max_segments or spare <= 0:
            return borders
        first = int(np.random.default_rng((self.seed, self.epoch, example)).integers(spare + 1))
        return borders[first : first + self.max_segments + 1]

    def _word_borders(self, example: int) -> tuple[np.ndarray, np.ndarray]:
        """(W,) the first piece of each word, and (W,) the one after its last."""
        sizes = self.split.word[example].astype(np.int64)
        ends = np.cumsum(sizes)
        return ends - sizes, ends
