"""How far each token of an input is from the nearest other occurrence of its word."""

from __future__ import annotations

import string
from collections.abc import Sequence

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
    first = np.flatnonzero(np.diff(words, prepend=-1))  # of each word
    end = np.append(first[1:], len(tokens))
    whole = np.logical_and.reduceat(is_visible, first)
    places: dict[bytes, list[int]] = {}
    names = [  # nothing is left of special symbols and of punctuation
        b"".join(texts[token] for token in tokens[a:b]).strip(_AROUND) for a, b in zip(first, end, strict=True)
    ]
    for number in np.flatnonzero(whole):
        places.setdefault(names[number], []).append(int(first[number]))
    distances = np.full(len(first), NONE, dtype=np.int64)
    for number, name in enumerate(names):
        if name and name in places:
            distances[number] = _nearest(np.array(places[name]), int(first[number]))
    return np.repeat(distances, end - first)


def _nearest(places: np.ndarray, place: int) -> int:
    """The distance to the nearest of some ascending places that is not ``place`` itself."""
    at = int(np.searchsorted(places, place))
    after = places[at : at + 2]
    others = np.concatenate([places[max(0, at - 1) : at], after[after != place]])
    return int(np.abs(others - place).min()) if len(others) else NONE
