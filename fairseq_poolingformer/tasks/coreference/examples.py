"""Coreference: the documents of a split, cut into segments that are encoded independently of each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fairseq_poolingformer.tasks.shared.words import WordExamples, WordSplit
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import refuse

MENTION_COLUMNS = ("first_word", "end_word", "cluster")
# of OntoNotes: broadcast conversation, broadcast news, magazines, newswire, the Bible, telephone, the web
GENRES = ("bc", "bn", "mz", "nw", "pt", "tc", "wb")
_GENRE = re.compile(rf"\(({'|'.join(GENRES)})/")


@dataclass(frozen=True)
class CoreferenceSplit(WordSplit):
    """One split; every field has one sequence for each document.

    Attributes:
        speaker: of each word, numbered in the document from 0.
        mention: rows of :data:`MENTION_COLUMNS`, as the corpus has them; clusters count from 1.
    """

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer-preprocess ontonotes",
        ids=("document",),
        numbers=("word", "sentence", "speaker", "mention"),
        texts=("id", "words", "notes"),
    )
    speaker: Sequences
    mention: Sequences

    def check(self) -> None:
        """Raise ValueError where a document's words, pieces and mentions disagree."""
        super().check()
        refuse(self.speaker, self.speaker.sizes != self.word.sizes, "not one speaker for each word")
        refuse(self.mention, self.mention.sizes % len(MENTION_COLUMNS) != 0, "not rows of three numbers")

    def mentions(self, example: int) -> np.ndarray:
        """(M, 3) the mentions of a document."""
        return self.mention[example].reshape(-1, len(MENTION_COLUMNS)).astype(np.int64)


def genre_of(name: str) -> int:
    """The number of a document's genre in :data:`GENRES`, from 1; 0 where its name says none of them."""
    match = _GENRE.match(name)
    return GENRES.index(match[1]) + 1 if match else 0


class CoreferenceExamples(WordExamples):
    """The documents of a split; mentions that do not lie in the stretch that is read are left out.

    No token is global (Longformer, appendix D).
    """

    def __init__(self, split: CoreferenceSplit, names: Sequence[str], *args: Any, **options: Any) -> None:
        super().__init__(split, *args, **options)
        self.names = names

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

    def _words(self, example: int) -> tuple[int, int]:
        """The words of which this epoch reads a piece at least, half-open."""
        borders = self._stretch(example)
        starts, ends = self._word_borders(example)
        return int(np.searchsorted(ends, borders[0], side="right")), int(np.searchsorted(starts, borders[-1]))


def merge_clusters(mentions: np.ndarray) -> np.ndarray:
    """Make one entity of those that have a mention in common, since a span has one entity in training."""
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
