"""The arrays and texts that a data folder holds of an example, and the tokens of pieces of its text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairseq_poolingformer.tasks.summarization import PAIRS
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.dictionary import EOS, UNK
from fairseq_poolingformer.text.surrogates import replace_lone_surrogates
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from .records import Example, Reject


@dataclass(frozen=True)
class Encoded:
    """An encoded example: a sequence of integers for each array of the layout, a string for each text."""

    arrays: Mapping[str, np.ndarray]
    texts: Mapping[str, str]


def encode_texts(tokenizer: Tokenizer, example: Example, layout: Layout = PAIRS) -> Encoded | Reject:
    """Encode texts with ``</s>``; the last is also ``summary`` (a line) and ``text``, where the layout has these."""
    encoded = tokenizer.encode_batch(example.texts)
    if not all(map(len, encoded)):
        return Reject("nothing to encode: the tokenizer leaves no token of a text")
    last = example.texts[-1]
    texts = {"id": one_line(example.id)}
    if "summary" in layout.texts:
        texts["summary"] = one_line(last)
    if "text" in layout.texts:
        texts["text"] = replace_lone_surrogates(last) + "\n"
    arrays = {name: np.append(ids, EOS) for name, ids in zip(layout.ids, encoded, strict=True)}
    return Encoded(arrays, texts)


def encode_words(tokenizer: Tokenizer, words: Sequence[str]) -> dict[str, np.ndarray]:
    """Encode words, each by itself behind a space, as ``document`` (T,) and ``word`` (W,) pieces; none is ``<unk>``."""
    pieces = tokenizer.encode_batch([f" {word}" for word in words])
    pieces = [piece if len(piece) else np.array([UNK]) for piece in pieces]
    return {"document": np.concatenate(pieces), "word": np.array(list(map(len, pieces)))}


def one_line(text: str) -> str:
    """The text with every run of whitespace and line separators replaced by one space."""
    return " ".join(replace_lone_surrogates(text).split())


class Tokens:
    """A document's tokens with their offsets in the corpus's unit."""

    def __init__(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray):
        self.ids, self.starts, self.ends = ids, starts, ends
        self.full = np.flatnonzero(ends > starts)  # those that have text

    def of_span(self, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (S,) the first token of each span and (S,) the one after its last; both 0 where it has no text."""
        first = np.searchsorted(self.ends[self.full], start, side="right")
        last = np.searchsorted(self.starts[self.full], end, side="left") - 1
        exists = first <= last
        return np.where(exists, np.take(self.full, first, mode="clip"), 0), np.where(exists, self.full[last] + 1, 0)
