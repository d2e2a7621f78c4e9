"""Masked language modeling: the tokens to predict, and what the model sees in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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
