"""Masked language modeling: chooses the tokens to predict, and what the model sees in their place.

For each token of an input, how far it is from the nearest other occurrence of its word.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_AROUND = (string.punctuation + string.whitespace).encode()
NONE = -1  # the word occurs nowhere else


@dataclass(frozen=True)
class SymbolTable:
    """The properties of a dictionary's symbols that masking reads."""

    has_text: np.ndarray  # (V,) bool, False for special and spare symbols
    begins_word: np.ndarray  # (V,) bool, True for symbols that begin with a space
    ends_line: np.ndarray  # (V,) bool, True for symbols after which a new word begins without a space
    num_characters: np.ndarray  # (V,) int64; a character of several symbols counts for the first of them

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> SymbolTable:
        """Make the table from every symbol's text in UTF-8, with the space before a word; special symbols have none."""
        return cls(
            has_text=np.array([bool(text) for text in texts]),
            begins_word=np.array([text[:1].isspace() for text in texts]),
            ends_line=np.array([text.endswith(b"\n") for text in texts]),
            # a byte 10xxxxxx continues a character
            num_characters=np.array([sum(byte & 0xC0 != 0x80 for byte in text) for text in texts]),
        )

    def words(self, tokens: np.ndarray) -> np.ndarray:
        """(T,) the number of each token's word, from 0; a special symbol is a word of its own."""
        alone = ~self.has_text[tokens]
        begins = self.begins_word[tokens] | alone
        begins[1:] |= alone[:-1] | self.ends_line[tokens[:-1]]
        return np.cumsum(begins) - begins[:1]  # from 0, whether or not the first token begins a word


def first_halves(words: np.ndarray) -> np.ndarray:
    """(T,) bool, True at the first half, rounded up, of each word of several tokens; ``words`` (T,) ascend from 0."""
    lengths = np.bincount(words)
    place = np.arange(len(words)) - (np.cumsum(lengths) - lengths)[words]  # less the tokens of all earlier words
    return (lengths[words] > 1) & (2 * place < lengths[words])


@dataclass(frozen=True)
class RepeatedNames:
    """Finds the names of an input that are repeated at some distance.

    A name is a word of several symbols: the vocabulary has no symbol for it, so it is rare, and nothing but another
    occurrence tells its spelling.
    """

    texts: Sequence[bytes]
    nearest: int
    farthest: int

    def __post_init__(self) -> None:
        if not 1 <= self.nearest <= self.farthest:
            raise ValueError(f"distances must ascend from 1 or more, got {self.nearest} to {self.farthest}")

    def draw(self, tokens: np.ndarray, words: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draw occurrences of such names, at most one of each name, so that the others stay to be read."""
        first, end = _bounds(words)
        names = _names(tokens, first, end, self.texts)
        distances = _distances(names, first, np.ones(len(first), dtype=bool))
        suitable = (end - first > 1) & (distances >= self.nearest) & (distances <= self.farthest)
        # in random order, the last occurrence of a name stays in the dictionary: each is drawn with equal chance
        of_name = {names[number]: number for number in rng.permutation(np.flatnonzero(suitable))}
        return words[first[list(of_name.values())[:count]]]


@dataclass(frozen=True)
class Masking:
    """RoBERTa's masking (Devlin et al., 2019, §3.1): 80 % of the tokens to predict are masked, 10 % replaced.

    Special symbols are neither predicted nor masked. Chance rounds the share of n tokens up or down, so that it is
    right on average. With whole words, all tokens of a word are masked, replaced or left together.
    """

    symbols: SymbolTable
    mask_index: int
    mask_prob: float = 0.15
    leave_unmasked_prob: float = 0.1
    random_token_prob: float = 0.1
    whole_words: bool = False
    names: RepeatedNames | None = None
    names_share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.mask_prob < 1:
            raise ValueError(f"mask_prob must be between 0 and 1, got {self.mask_prob}")
        if not (min(self.leave_unmasked_prob, self.random_token_prob) >= 0 and self._untouched_or_random <= 1):
            raise ValueError(
                "leave_unmasked_prob and random_token_prob must be 0 or more and at most 1 together, "
                f"got {self.leave_unmasked_prob} and {self.random_token_prob}"
            )
        if self.names is not None and not (self.whole_words and 0 < self.names_share <= 1):
            raise ValueError(
                "repeated names are whole words and a share between 0 and 1 of them, "
                f"got whole_words={self.whole_words} and names_share={self.names_share}"
            )

    @property
    def _untouched_or_random(self) -> float:
        return self.leave_unmasked_prob + self.random_token_prob

    def apply(self, tokens: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Mask a sequence."""
        unit = self.symbols.words(tokens) if self.whole_words else np.arange(len(tokens))
        candidates = np.unique(unit[self.symbols.has_text[tokens]])
        count = int(self.mask_prob * len(candidates) + rng.random())  # rounded by chance, right on average
        # a unit's chance decides what happens to it; it is infinite where the unit is not drawn
        chance = np.full(len(tokens), np.inf)
        chance[self._draw(tokens, unit, candidates, count, rng)] = rng.random(count)
        chance = chance[unit]
        if self.names is not None:
            chance[first_halves(unit)] = np.inf
        seen = tokens.copy()
        is_target = chance < np.inf
        # [0, random) random symbols, [random, random + unmasked) as they are, the rest masked
        is_random = chance < self.random_token_prob
        seen[is_target & (chance >= self._untouched_or_random)] = self.mask_index
        seen[is_random] = rng.choice(np.flatnonzero(self.symbols.has_text), int(is_random.sum()))
        return seen, is_target

    def _draw(
        self, tokens: np.ndarray, unit: np.ndarray, candidates: np.ndarray, count: int, rng: np.random.Generator
    ) -> np.ndarray:
        """(count,) different candidates, repeated names among them."""
        if self.names is None:
            return rng.choice(candidates, count, replace=False)
        names = self.names.draw(tokens, unit, round(self.names_share * count), rng)
        others = np.setdiff1d(candidates, names)
        return np.concatenate([names, rng.choice(others, count - len(names), replace=False)])


def nearest_repetitions(
    tokens: np.ndarray, words: np.ndarray, is_visible: np.ndarray, texts: Sequence[bytes]
) -> np.ndarray:
    """The distance from each token's word to the nearest other visible occurrence of the same word, in tokens.

    Two words are the same when their texts are, without the spaces and ASCII punctuation around them. A word's place is
    that of its first token.
    """
    if not len(tokens):
        return np.empty(0, dtype=np.int64)
    first, end = _bounds(words)
    distances = _distances(_names(tokens, first, end, texts), first, np.logical_and.reduceat(is_visible, first))
    return np.repeat(distances, end - first)


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
    after = places[at : at + 2]  # two: the first of them may be the place itself
    others = np.concatenate([places[max(0, at - 1) : at], after[after != place]])
    return int(np.abs(others - place).min()) if len(others) else NONE
