"""Masked language modeling: which tokens are to be predicted, and what stands in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SymbolTable:
    """What masking needs to know of the symbols of a dictionary.

    Attributes:
        has_text: (V,) bool; special and spare symbols have none.
        begins_word: (V,) bool: begins with a space.
        ends_line: (V,) bool: what follows is another word, though no space is before it.
        num_characters: (V,) int64; a character of several symbols counts for the first of them.
    """

    has_text: np.ndarray
    begins_word: np.ndarray
    ends_line: np.ndarray
    num_characters: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> SymbolTable:
        """From every symbol's text in UTF-8, a space before a word being part of it; empty where there is none."""
        return cls(
            has_text=np.array([bool(text) for text in texts]),
            begins_word=np.array([text[:1].isspace() for text in texts]),
            ends_line=np.array([text.endswith(b"\n") for text in texts]),
            # a byte 10xxxxxx continues a character
            num_characters=np.array([sum(byte & 0xC0 != 0x80 for byte in text) for text in texts]),
        )


@dataclass(frozen=True)
class Masking:
    """RoBERTa's masking (Devlin et al., 2019, §3.1): of the tokens to predict 80 % are masked and 10 % are others.

    Special symbols are neither predicted nor masked. A share of n tokens is rounded up or down by chance, so that it is
    right on average. With whole words, words are drawn, and the tokens of one are masked, replaced or left together.

    Args:
        symbols: of the dictionary.
        mask_index: of ``<mask>``.
        mask_prob: share of the tokens (words) to predict.
        leave_unmasked_prob: share of those that stay what they are.
        random_token_prob: share of those that become a random symbol.
        whole_words: draw words, which begin with a space, instead of tokens.

    Raises:
        ValueError: the shares are none.
    """

    symbols: SymbolTable
    mask_index: int
    mask_prob: float = 0.15
    leave_unmasked_prob: float = 0.1
    random_token_prob: float = 0.1
    whole_words: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.mask_prob < 1:
            raise ValueError(f"mask_prob must be between 0 and 1, got {self.mask_prob}")
        if min(self.leave_unmasked_prob, self.random_token_prob) < 0 or self._untouched_or_random > 1:
            raise ValueError(
                "leave_unmasked_prob and random_token_prob must be 0 or more and at most 1 together, "
                f"got {self.leave_unmasked_prob} and {self.random_token_prob}"
            )

    @property
    def _untouched_or_random(self) -> float:
        return self.leave_unmasked_prob + self.random_token_prob

    def apply(self, tokens: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Mask a sequence.

        Args:
            tokens: (T,) indices; left as they are.
            rng: decides everything.

        Returns:
            (T,) what the model sees, and (T,) bool, True at the tokens to predict.
        """
        unit = self._units(tokens)
        candidates = np.unique(unit[self.symbols.has_text[tokens]])
        count = int(self.mask_prob * len(candidates) + rng.random())
        chance = np.full(len(tokens), np.inf)  # of a unit; infinite where it is not drawn
        chance[rng.choice(candidates, count, replace=False)] = rng.random(count)
        chance = chance[unit]
        seen = tokens.copy()
        is_target = chance < np.inf
        is_random = chance < self.random_token_prob
        seen[is_target & (chance >= self._untouched_or_random)] = self.mask_index
        seen[is_random] = rng.choice(np.flatnonzero(self.symbols.has_text), int(is_random.sum()))
        return seen, is_target

    def _units(self, tokens: np.ndarray) -> np.ndarray:
        """(T,) number of each token's word, or of the token itself; special symbols stand alone."""
        if not self.whole_words:
            return np.arange(len(tokens))
        alone = ~self.symbols.has_text[tokens]
        begins = self.symbols.begins_word[tokens] | alone
        begins[1:] |= alone[:-1] | self.symbols.ends_line[tokens[:-1]]
        return np.cumsum(begins) - begins[:1]
