"""Masked language modeling: chooses the tokens to predict, and what the model sees in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairseq_poolingformer.text.repetitions import RepeatedNames


@dataclass(frozen=True)
class SymbolTable:
    """The properties of a dictionary's symbols that masking reads.

    Attributes:
        has_text: (V,) bool, False for special and spare symbols.
        begins_word: (V,) bool, True for symbols that begin with a space.
        ends_line: (V,) bool, True for symbols after which a new word begins without a space.
        num_characters: (V,) int64; a character of several symbols counts for the first of them.
    """

    has_text: np.ndarray
    begins_word: np.ndarray
    ends_line: np.ndarray
    num_characters: np.ndarray

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
        return np.cumsum(begins) - begins[:1]


def first_halves(words: np.ndarray) -> np.ndarray:
    """(T,) bool, True at the first half, rounded up, of each word of several tokens; ``words`` (T,) ascend from 0."""
    lengths = np.bincount(words)
    place = np.arange(len(words)) - (np.cumsum(lengths) - lengths)[words]
    return (lengths[words] > 1) & (2 * place < lengths[words])


@dataclass(frozen=True)
class Masking:
    """RoBERTa's masking (Devlin et al., 2019, §3.1): 80 % of the tokens to predict are masked, 10 % replaced.

    Special symbols are neither predicted nor masked. Chance rounds the share of n tokens up or down, so that it is
    right on average. With whole words, all tokens of a word are masked, replaced or left together.

    Args:
        symbols: the properties of the dictionary's symbols.
        mask_index: the index of ``<mask>``.
        mask_prob: the share of the tokens (words) to predict.
        leave_unmasked_prob: the share of these that stay as they are.
        random_token_prob: the share of these that a random symbol replaces.
        whole_words: draw words, which begin with a space, instead of tokens.
        names: draw occurrences of these first; needs whole words. Of every drawn word of several symbols the first half
            stays as it is: without it, nothing tells which of the names around is missing.
        names_share: the share of the words to predict that are such names, where the sequence has enough of them.

    Raises:
        ValueError: a share is out of range, or names are drawn without whole words.
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
        if min(self.leave_unmasked_prob, self.random_token_prob) < 0 or self._untouched_or_random > 1:
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
        """Mask a sequence.

        Args:
            tokens: (T,) indices; they are not changed in place.
            rng: the only source of chance.

        Returns:
            (T,) the indices that the model sees, and (T,) bool, True at the tokens to predict.
        """
        unit = self.symbols.words(tokens) if self.whole_words else np.arange(len(tokens))
        candidates = np.unique(unit[self.symbols.has_text[tokens]])
        count = int(self.mask_prob * len(candidates) + rng.random())
        # a unit's chance decides what happens to it; it is infinite where the unit is not drawn
        chance = np.full(len(tokens), np.inf)
        chance[self._draw(tokens, unit, candidates, count, rng)] = rng.random(count)
        chance = chance[unit]
        if self.names is not None:
            chance[first_halves(unit)] = np.inf
        seen = tokens.copy()
        is_target = chance < np.inf
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
