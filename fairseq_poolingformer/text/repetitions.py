"""How far each token of an input is from the nearest other occurrence of its word."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_AROUND = (string.punctuation + string.whitespace).encode()
NONE = -1  # the word occurs nowhere else


def nearest_repetitions(
    tokens: np.ndarray, words: np.ndarray, is_visible: np.ndarray, texts: Sequence[bytes]
) -> np.ndarray:
    """The distance from each token's word to the nearest other visible occurrence of the same word, in tokens.

    Two words are the same when their texts are, without the spaces and ASCII punctuation around them. A word's place is
    that of its first token.

    Args:
        tokens: (T,) symbols of the input before masking.
        words: (T,) the number of each token's word, ascending from 0.
        is_visible: (T,) bool, False where the model sees another symbol; an occurrence counts if all of it is visible.
        texts: V, the text of every symbol, empty for special ones.

    Returns:
        (T,) int64, at least 1; NONE where there is no such occurrence, for special symbols and for punctuation.
    """
    if not len(tokens):
        return np.empty(0, dtype=np.int64)
    first, end = _bounds(words)
    distances = _distances(_names(tokens, first, end, texts), first, np.logical_and.reduceat(is_visible, first))
    return np.repeat(distances, end - first)


@dataclass(frozen=True)
class RepeatedNames:
    """Finds the names of an input that are repeated at some distance.

    A name is a word of several symbols: the vocabulary has no symbol for it, so it is rare, and nothing but another
    occurrence tells its spelling.

    Args:
        texts: V, the text of every symbol, empty for special ones.
        nearest: the least distance to the nearest other occurrence, in tokens.
        farthest: the greatest.

    Raises:
        ValueError: the distances do not ascend from 1.
    """

    texts: Sequence[bytes]
    nearest: int
    farthest: int

    def __post_init__(self) -> None:
        if not 1 <= self.nearest <= self.farthest:
            raise ValueError(f"distances must ascend from 1 or more, got {self.nearest} to {self.farthest}")

    def draw(self, tokens: np.ndarray, words: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draw occurrences of such names, at most one of each name, so that the others stay to be read.

        Args:
            tokens: (T,) symbols of the input.
            words: (T,) the number of each token's word, ascending from 0.
            count: how many, if there are so many.
            rng: the only source of chance.

        Returns:
            The numbers of the drawn words.
        """
        first, end = _bounds(words)
        names = _names(tokens, first, end, self.texts)
        distances = _distances(names, first, np.ones(len(first), dtype=bool))
        suitable = (end - first > 1) & (distances >= self.nearest) & (distances <= self.farthest)
        of_name = {names[number]: number for number in rng.permutation(np.flatnonzero(suitable))}
        return words[first[list(of_name.values())[:count]]]


def _bounds(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first token of each word, and the one after its last."""
    first = np.flatnonzero(np.diff(words, prepend=-1))
    return first, np.append(first[1:], len(words))


def _names(tokens: np.ndarray, first: np.ndarray, end: np.ndarray, texts: Sequence[bytes]) -> list[bytes]:
    """The words' texts without what is around them; nothing is left of special symbols and of punctuation."""
    return [b"".join(texts[token] for token in tokens[a:b]).strip(_AROUND) for a, b in zip(first, end, strict=True)]


def _distances(names: Sequence[bytes], first: np.ndarray, is_visible: np.ndarray) -> np.ndarray:
    """The distance of each word to the nearest other visible word of its name; NONE where there is none."""
    places: dict[bytes, list[int]] = {}
    for number in np.flatnonzero(is_visible).tolist():
        places.setdefault(names[number], []).append(int(first[number]))
    distances = np.full(len(first), NONE, dtype=np.int64)
    for number, name in enumerate(names):
        if name and name in places:
            distances[number] = _nearest(np.array(places[name]), int(first[number]))
    return distances


def _nearest(places: np.ndarray, place: int) -> int:
    """The distance to the nearest of some ascending places that is not ``place`` itself."""
    at = int(np.searchsorted(places, place))
    after = places[at : at + 2]
    others = np.concatenate([places[max(0, at - 1) : at], after[after != place]])
    return int(np.abs(others - place).min()) if len(others) else NONE
