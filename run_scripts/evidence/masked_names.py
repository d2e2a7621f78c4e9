"""Masked language modeling of names that come back at some distance: the task ``masked_names``."""

# ruff: noqa: UP045 - fairseq reads the fields' types at run time and knows Optional only

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

import numpy as np
from fairseq.data import Dictionary
from fairseq.tasks import register_task

from fairseq_poolingformer.tasks.masked_lm.task import LongMaskedLMConfig, LongMaskedLMTask
from fairseq_poolingformer.text.masking import Masking
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from run_scripts.evidence.repetitions import nearest_repetitions, word_texts


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
        texts, lengths = word_texts(tokens, words, self.texts), np.bincount(words)
        all_visible = np.ones(len(tokens), dtype=bool)
        distances = nearest_repetitions(tokens, words, all_visible, self.texts)[np.cumsum(lengths) - lengths]
        suitable = (lengths > 1) & (distances >= self.nearest) & (distances <= self.farthest)
        # in random order, the last occurrence of a name stays in the dictionary: each is drawn with equal chance
        of_name = {texts[number]: number for number in rng.permutation(np.flatnonzero(suitable))}
        return np.array([*of_name.values()][:count], dtype=np.int64)


@dataclass(frozen=True)
class NameMasking(Masking):
    """Masking of whole words, a share of them repeated names; of a word of several symbols the second half."""

    names: RepeatedNames = field(kw_only=True)
    names_share: float = field(default=0.5, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.whole_words and 0 < self.names_share <= 1):
            raise ValueError(
                "repeated names are whole words and a share between 0 and 1 of them, "
                f"got whole_words={self.whole_words} and names_share={self.names_share}"
            )

    def apply(self, tokens: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Mask a sequence."""
        seen, is_target = super().apply(tokens, rng)
        is_first = first_halves(self.symbols.words(tokens))
        return np.where(is_first, tokens, seen), is_target & ~is_first

    def draw(
        self, tokens: np.ndarray, unit: np.ndarray, candidates: np.ndarray, count: int, rng: np.random.Generator
    ) -> np.ndarray:
        """(count,) different candidates, repeated names among them."""
        names = self.names.draw(tokens, unit, round(self.names_share * count), rng)
        others = np.setdiff1d(candidates, names)
        return np.concatenate([names, rng.choice(others, count - len(names), replace=False)])


@dataclass
class MaskedNamesConfig(LongMaskedLMConfig):
    mask_names: Optional[str] = field(
        default=None,
        metadata={
            "help": "two distances in tokens, such as 129-512. Predict names, words that the vocabulary has no symbol "
            "for, whose nearest other occurrence is so far away, and other words beside them"
        },
    )
    mask_names_share: float = field(
        default=0.5,
        metadata={"help": "the share of such names among the words to predict, where a block has enough of them"},
    )


@register_task("masked_names", dataclass=MaskedNamesConfig)
class MaskedNamesTask(LongMaskedLMTask):
    """``long_masked_lm`` whose words to predict are names that come back."""

    cfg: MaskedNamesConfig

    def __init__(self, cfg: MaskedNamesConfig, dictionary: Dictionary) -> None:
        super().__init__(cfg, dictionary)
        nearest, _, farthest = (cfg.mask_names or "").partition("-")
        if not (nearest.isdecimal() and farthest.isdecimal()):
            raise ValueError(f"--mask-names must be two distances in tokens, such as 129-512; got {cfg.mask_names!r}")
        texts = load_tokenizer(self.data_folder).symbol_texts()
        texts += [b""] * (len(dictionary) - len(texts))
        texts[self.mask_idx] = b""
        names = RepeatedNames(texts, int(nearest), int(farthest))
        self.masking = NameMasking(**vars(self.masking), names=names, names_share=cfg.mask_names_share)
