"""Attention weights of tokens, summed up to passages: what a :class:`Look` holds, and pages and pictures show."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fairseq_poolingformer.attention.probabilities import BandWeights
from fairseq_poolingformer.tasks.summarization.rouge import split_sentences
from fairseq_poolingformer.text.tokenizer_base import byte_offsets

_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Passages:
    """A text and where its passages lie, between which there is white space."""

    text: str
    spans: list[tuple[int, int]]  # characters ``[start, end)`` of each passage, in order

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


CROSS, ONE, TWO = "cross", "one", "two"
TITLES = {CROSS: "Cross-attention", ONE: "Level one", TWO: "Level two"}


@dataclass(frozen=True)
class Shares:
    """Attention mass of the rows of one kind of attention."""

    # ``weights`` are means over heads and a row's tokens; the last column is <s> and </s>; a row adds up to 1, or to 0
    # where the model has not read it

    layers: list[int]  # their numbers, from 0
    weights: np.ndarray  # (layers, rows, passages + 1)


@dataclass(frozen=True)
class WordLook:
    """Attention of one word of the document, token by token."""

    span: tuple[int, int]  # its characters ``[start, end)``
    levels: dict[str, np.ndarray]  # kind -> (layers, tokens) shares of the attention on the document's tokens


@dataclass(frozen=True)
class Look:
    """Attention of a model in a document."""

    title: str  # the document's name
    model: str  # a line about the model
    document: Passages  # its passages, which levels one and two have as rows
    read: int  # number of characters that the model read; the rest was cut off
    tokens: np.ndarray  # (tokens, 2) the characters ``[start, end)`` of each token that the model read
    views: dict[str, Shares]  # by kind: CROSS, ONE, TWO
    summary: Passages | None = None  # its sentences, the rows of the cross-attention; None for a model without
    pieces: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))  # tokens' characters in it
    piece_weights: np.ndarray | None = None  # (pieces, passages + 1) their cross-attention, the mean of all layers
    words: list[WordLook] = field(default_factory=list)  # chosen words of the document


def seen_passages(weights: BandWeights, passage: Tensor, count: int) -> Tensor:
    """Sum one level's weights up to passages."""
    num_keys = weights.key_start.size(0)
    seen = weights.band.new_zeros(count * num_keys)
    band, keys = weights.band[0], weights.band_keys.clamp(min=0)
    if keys.size(0) == 1:
        band = band.mean(0, keepdim=True)
    for head_band, head_keys in zip(band, keys, strict=True):
        seen.index_add_(0, (passage[:, None] * num_keys + head_keys).flatten(), head_band.flatten() / len(band))
    slots = weights.global_keys[0].clamp(min=0)
    seen.index_add_(0, (passage[:, None] * num_keys + slots).flatten(), weights.to_global[0].mean(0).flatten())
    seen = seen.view(count, num_keys)
    used = weights.global_queries[0] >= 0
    from_global = weights.from_global[0].mean(0)[used]
    seen.index_add_(0, passage[weights.global_queries[0][used]], from_global)
    tokens = torch.bincount(passage, minlength=count).clamp(min=1)
    return to_passages(weights.over_tokens(seen / tokens[:, None]), passage, count)


def to_passages(rows: Tensor, passage: Tensor, count: int) -> Tensor:
    """Sum (rows, T) weights on tokens up to (rows, count) weights on passages."""
    return rows.new_zeros(rows.size(0), count).index_add(1, passage, rows[:, : len(passage)])


def mean_rows(rows: np.ndarray, group: np.ndarray, count: int) -> np.ndarray:
    """Return (count, …) means of the rows (rows, …) of each group; zeros where a group has none."""
    sums = np.zeros((count, *rows.shape[1:]), dtype=rows.dtype)
    np.add.at(sums, group, rows)
    return sums / np.bincount(group, minlength=count).clip(1).reshape(-1, *[1] * (rows.ndim - 1))
