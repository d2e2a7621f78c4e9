"""Masked language modeling: blocks of documents, the tokens to predict, and what the model sees in their place.

For each token of an input, how far it is from the nearest other occurrence of its word.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_AROUND = (string.punctuation + string.whitespace).encode()
NONE = -1  # the word occurs nowhere else
FRAME = 2  # <s> and </s> around every block


@dataclass(frozen=True)
class DocumentBlocks:
    """The places of blocks in the tokens of all documents, one document after the other."""

    first_token: np.ndarray  # (N,) int64
    end_token: np.ndarray  # (N,) int64, half-open; a block's ``<s>`` and last ``</s>`` do not count
    num_cut: int  # the number of documents in several blocks; 0 where blocks are packed
    num_empty: int  # the number of documents without a token; they have no block
    num_evened: int  # the number of last blocks that got tokens of the block before

    def __len__(self) -> int:
        return len(self.first_token)

    @property
    def sizes(self) -> np.ndarray:
        """(N,) the number of tokens of each block, with ``<s>`` and ``</s>``."""
        return self.end_token - self.first_token + FRAME


def cut_into_blocks(
    bounds: np.ndarray, *, max_tokens: int, min_tokens: int | None = None, pack: bool = False
) -> DocumentBlocks:
    """Cut documents into full blocks ``<s> … </s>``; the last two share their tokens where one would be too short."""
    if max_tokens <= FRAME:
        raise ValueError(f"max_tokens must be at least {FRAME + 1}, for <s>, a token and </s>; got {max_tokens}")
    if min_tokens is None:
        min_tokens = max_tokens // 8
    if not 0 <= min_tokens <= max_tokens // 2:
        raise ValueError(f"min_tokens must be between 0 and half of max_tokens {max_tokens}, got {min_tokens}")
    room = max_tokens - FRAME
    num_empty = int((np.diff(bounds) <= 1).sum())
    if pack:
        bounds = bounds[[0, -1]] if len(bounds) > 1 else bounds
    starts, lengths = bounds[:-1], np.diff(bounds) - 1
    counts = -(-lengths // room)
    tails = lengths - (counts - 1) * room
    is_evened = (counts > 1) & (tails + FRAME < min_tokens)

    document = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    is_last = number == counts[document] - 1
    first = number * room
    moved = is_last & is_evened[document]
    first[moved] -= (room - tails[document[moved]]) // 2
    end = np.append(first, 0)[1:]
    end[is_last] = lengths[document[is_last]]
    first += starts[document]
    end += starts[document]
    num_cut = 0 if pack else int((counts > 1).sum())
    return DocumentBlocks(first, end, num_cut, num_empty, int(is_evened.sum()))


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


@dataclass(frozen=True)
class Masking:
    """RoBERTa's masking (Devlin et al., 2019, §3.1): 80 % of the tokens to predict are masked, 10 % replaced."""

    # chance rounds the share of n tokens up or down, so that it is right on average

    symbols: SymbolTable
    mask_index: int
    mask_prob: float = 0.15
    leave_unmasked_prob: float = 0.1
    random_token_prob: float = 0.1
    whole_words: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.mask_prob < 1:
            raise ValueError(f"mask_prob must be between 0 and 1, got {self.mask_prob}")
        if not (min(self.leave_unmasked_prob, self.random_token_prob) >= 0 and self._untouched_or_random <= 1):
            raise ValueError(
                "leave_unmasked_prob and random_token_prob must be 0 or more and at most 1 together, "
                f"got {self.leave_unmasked_prob} and {self.random_token_prob}"
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
        chance[self.draw(tokens, unit, candidates, count, rng)] = rng.random(count)
        chance = chance[unit]
        seen = tokens.copy()
        is_target = chance < np.inf
        # [0, random) random symbols, [random, random + unmasked) as they are, the rest masked
        is_random = chance < self.random_token_prob
        seen[is_target & (chance >= self._untouched_or_random)] = self.mask_index
        seen[is_random] = rng.choice(np.flatnonzero(self.symbols.has_text), int(is_random.sum()))
        return seen, is_target

    def draw(
        self, tokens: np.ndarray, unit: np.ndarray, candidates: np.ndarray, count: int, rng: np.random.Generator
    ) -> np.ndarray:
        """(count,) different candidates, each with equal chance; a derived class may prefer some."""
        return rng.choice(candidates, count, replace=False)


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
