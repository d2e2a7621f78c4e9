"""Coreference: the documents of a split, cut into segments that are encoded independently of each other."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairseq_poolingformer.tasks.shared.examples import Examples, Segment, Symbols
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse

MENTION_COLUMNS = ("first_word", "end_word", "cluster")
# of OntoNotes: broadcast conversation, broadcast news, magazines, newswire, the Bible, telephone, the web
GENRES = ("bc", "bn", "mz", "nw", "pt", "tc", "wb")
_GENRE = re.compile(rf"\(({'|'.join(GENRES)})/")


@dataclass(frozen=True)
class CoreferenceSplit(Split):
    """One split; every field has one sequence for each document.

    Attributes:
        document: dictionary ids of its pieces.
        word: pieces of each word.
        sentence: words of each sentence.
        speaker: of each word, numbered in the document from 0.
        mention: rows of :data:`MENTION_COLUMNS`, as the corpus has them; clusters count from 1.
    """

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer-preprocess ontonotes",
        ids=("document",),
        numbers=("word", "sentence", "speaker", "mention"),
        texts=("id", "words", "notes"),
    )
    document: Sequences
    word: Sequences
    sentence: Sequences
    speaker: Sequences
    mention: Sequences

    def check(self) -> None:
        """Raise ValueError where a document's words and pieces disagree."""
        pieces = np.array([self.word[number].sum() for number in range(len(self))])
        refuse(self.word, pieces != self.document.sizes, "not the number of pieces for each word")
        words = np.array([self.sentence[number].sum() for number in range(len(self))])
        refuse(self.sentence, words != self.word.sizes, "not the number of words for each sentence")
        refuse(self.speaker, self.speaker.sizes != self.word.sizes, "not one speaker for each word")
        refuse(self.mention, self.mention.sizes % len(MENTION_COLUMNS) != 0, "not rows of three numbers")

    def mentions(self, example: int) -> np.ndarray:
        """(M, 3) the mentions of a document."""
        return self.mention[example].reshape(-1, len(MENTION_COLUMNS)).astype(np.int64)


def genre_of(name: str) -> int:
    """The number of a document's genre in :data:`GENRES`, from 1; 0 where its name says none of them."""
    match = _GENRE.match(name)
    return GENRES.index(match[1]) + 1 if match else 0


def cut_document(words: np.ndarray, sentences: np.ndarray, room: int) -> np.ndarray:
    """Cut a document into segments: after a sentence where one fits, else after a word, else after any piece.

    Args:
        words: (W,) pieces of each word.
        sentences: words of each sentence.
        room: pieces of a segment at most.

    Returns:
        (S + 1,) the segments' borders, from 0 to the number of pieces.
    """
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


class CoreferenceExamples(Examples):
    """The documents of a split.

    No token is global (Longformer, appendix D). In training a document of more than ``max_segments`` segments gives a
    stretch of so many, drawn anew for each epoch (Joshi et al., 2019); mentions that do not lie in it are left out.

    Args:
        split: the documents.
        names: theirs, whose beginnings tell the genre.
        symbols: of the dictionary.
        max_positions: tokens of a segment, with ``<s>`` and ``</s>``.
        max_segments: of a document; 0 for all.
        seed: of the draws.
    """

    def __init__(
        self,
        split: CoreferenceSplit,
        names: Sequence[str],
        symbols: Symbols,
        max_positions: int,
        max_segments: int = 0,
        seed: int = 1,
    ) -> None:
        self.split, self.names, self.symbols = split, names, symbols
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
            found.append(Segment(tokens, np.zeros(len(tokens), bool)))
        return found

    def inputs(self, example: int) -> dict[str, int | np.ndarray]:
        """Further arguments of :class:`~fairseq_poolingformer.tasks.coreference.head.CoreferenceHead`."""
        borders = self._stretch(example)
        starts, ends = self._word_borders(example)
        first, end = self._words(example)
        sentences = np.repeat(np.arange(len(self.split.sentence[example])), self.split.sentence[example])
        return {
            "segment_sizes": np.diff(borders),
            "word_starts": np.maximum(starts[first:end] - borders[0], 0),
            "word_ends": np.minimum(ends[first:end], borders[-1]) - borders[0],
            "sentences": sentences[first:end],
            "speakers": self.split.speaker[example][first:end].astype(np.int64),
            "genre": genre_of(self.names[example]),
        }

    def targets(self, example: int) -> dict[str, int | np.ndarray]:
        """The mentions, (M, 3): start and end in words, and the entity, from 1."""
        first, end = self._words(example)
        mentions = merge_clusters(self.split.mentions(example))
        mentions = mentions[(mentions[:, 0] >= first) & (mentions[:, 1] <= end)]
        return {"mentions": mentions - [first, first, 0]}

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

    def _words(self, example: int) -> tuple[int, int]:
        """The words of which this epoch reads a piece at least, half-open."""
        borders = self._stretch(example)
        starts, ends = self._word_borders(example)
        return int(np.searchsorted(ends, borders[0], side="right")), int(np.searchsorted(starts, borders[-1]))


def merge_clusters(mentions: np.ndarray) -> np.ndarray:
    """Make one entity of those that have a mention in common, since a span has one entity in training.

    Args:
        mentions: (M, 3) start, end and entity, 1 or more.

    Returns:
        (M', 3) the same without repetitions; entities are numbered from 1.
    """
    joined: dict[int, int] = {}

    def root(entity: int) -> int:
        while joined.setdefault(entity, entity) != entity:
            entity = joined[entity]
        return entity

    entity_of: dict[tuple[int, int], int] = {}
    for start, end, entity in mentions.tolist():
        other = entity_of.setdefault((start, end), entity)
        joined[root(entity)] = root(other)
    numbers: dict[int, int] = {}
    rows = [(*span, numbers.setdefault(root(entity), len(numbers) + 1)) for span, entity in entity_of.items()]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)
