"""A text as passages, and the passage of each token."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from fairseq_poolingformer.tasks.summarization.rouge import split_sentences
from fairseq_poolingformer.text.tokenizer_base import byte_offsets

_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Passages:
    """A text and where its passages lie.

    Attributes:
        text: the whole text.
        spans: characters ``[start, end)`` of each passage, in order. What lies between two passages is white space.
    """

    text: str
    spans: list[tuple[int, int]]

    @classmethod
    def sentences(cls, text: str) -> Passages:
        """Cut a text into sentences; a line feed always ends one. A text of white space alone has no passage."""
        words = list(_WORD.finditer(text))
        spans, first = [], 0
        for sentence in split_sentences(text):
            last = first + len(sentence.split())
            spans.append((words[first].start(), words[last - 1].end()))
            first = last
        return cls(text, spans)

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, number: int) -> str:
        start, end = self.spans[number]
        return self.text[start:end]

    def of_characters(self, positions: np.ndarray) -> np.ndarray:
        """Return the number of the passage at each character; white space belongs to the passage before it."""
        starts = np.array([start for start, _ in self.spans], dtype=np.int64)
        return np.searchsorted(starts, positions, side="right").clip(1) - 1


def characters(text: str, positions: np.ndarray) -> np.ndarray:
    """Turn positions in the UTF-8 bytes of a text into positions in its characters."""
    return np.searchsorted(byte_offsets(text), positions)
