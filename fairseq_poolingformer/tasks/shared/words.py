"""Documents that are divided into words and sentences before they are encoded: coreference, labels of words."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from fairseq_poolingformer.tasks.shared.examples import Examples, Segment, Symbols
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse, sums


@dataclass(frozen=True)
class WordSplit(Split):
    """One split; every field has one sequence for each document.

    Attributes:
        document: dictionary ids of its pieces.
        word: pieces of each word.
        sentence: words of each sentence.
    """

    document: Sequences
    word: Sequences
    sentence: Sequences

    def check(self) -> None:
        """Raise ValueError where a document's words and pieces disagree."""
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
    """The documents of a split, as segments ``<s> pieces </s>``.

    In training a document of more than ``max_segments`` segments gives a stretch of so many, drawn anew for each epoch
    (Joshi et al., 2019).

    ``seed`` is that of the draws.
    """

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
        found = []
        for start, end in itertools.pairwise(borders):
            tokens = np.concatenate([[symbols.bos], document[start:end], [symbols.eos]])
            found.append(Segment(tokens, (np.arange(len(tokens)) == 0) & self.use_global))
        return found

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
