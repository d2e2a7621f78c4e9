"""Distance of each word of an input to the nearest other occurrence of it."""

import string
from collections.abc import Sequence

import numpy as np

NONE = -1  # the word occurs nowhere else
_AROUND = (string.punctuation + string.whitespace).encode()


def nearest_repetitions(
    tokens: np.ndarray, words: np.ndarray, is_visible: np.ndarray, texts: Sequence[bytes]
) -> np.ndarray:
    """Tokens from each word to the nearest other visible one of the same text without spaces and punctuation."""
    if not len(tokens):
        return np.empty(0, dtype=np.int64)
    lengths = np.bincount(words)
    first = np.cumsum(lengths) - lengths
    is_whole = np.logical_and.reduceat(is_visible, first)
    return np.repeat(_distances(word_texts(tokens, words, texts), first, is_whole), lengths)


def word_texts(tokens: np.ndarray, words: np.ndarray, texts: Sequence[bytes]) -> list[bytes]:
    """Each word's text without spaces and ASCII punctuation around it; nothing is left of special symbols."""
    ends = np.cumsum(np.bincount(words))[:-1]
    return [b"".join(texts[token] for token in word).strip(_AROUND) for word in np.split(tokens, ends)]


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
    after = places[at : at + 2]  # two: the first of them may be the place itself
    others = np.concatenate([places[max(0, at - 1) : at], after[after != place]])
    return int(np.abs(others - place).min()) if len(others) else NONE
