"""The arrays and texts that a data folder holds of an example."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fairseq_poolingformer.tasks.summarization import PAIRS
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.dictionary import EOS, replace_lone_surrogates
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from .records import Example, Reject


@dataclass(frozen=True)
class Encoded:
    """An encoded example: a sequence of integers for each array of the layout, a string for each text.

    ``lost`` is the example's.
    """

    arrays: Mapping[str, np.ndarray]
    texts: Mapping[str, str]
    lost: Mapping[str, int] = field(default_factory=dict, kw_only=True)


def encode_texts(tokenizer: Tokenizer, example: Example, layout: Layout = PAIRS) -> Encoded | Reject:
    """Encode every text of an example, followed by ``</s>`` as fairseq's own preprocessing writes it.

    The last text is also written on one line as ``summary``, and unchanged with a blank line after it as ``text``,
    where the layout has these.
    """
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
    return Encoded(arrays, texts, lost=example.lost)


def one_line(text: str) -> str:
    """The text with every run of whitespace and line separators replaced by one space."""
    return " ".join(replace_lone_surrogates(text).split())
