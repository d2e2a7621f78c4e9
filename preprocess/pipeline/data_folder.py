"""What a data folder holds of each example, and how an example becomes that."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fairseq_poolingformer.text.dictionary import EOS, replace_lone_surrogates
from fairseq_poolingformer.text.tokenizers import Tokenizer
from preprocess.pipeline import report
from preprocess.pipeline.records import Example, Reject


@dataclass(frozen=True)
class Encoded:
    """An example as the data folder holds it: a sequence of integers for each array, a string for each text."""

    arrays: Mapping[str, np.ndarray]
    texts: Mapping[str, str]


@dataclass(frozen=True)
class Layout:
    """The files of a data folder.

    Attributes:
        encode: what becomes of an example, or why nothing does; a pure function that can be pickled.
        ids: names of the arrays of dictionary ids.
        numbers: names of the arrays of other integers, stored as int32.
        texts: names of the texts, ``id`` among them; each is a file ``{split}.{name}.txt`` with a newline after every
            example's.
        dictionaries: names of the dictionary's files.
        settings: all that decides what ``encode`` does beside the tokenizer, as JSON values.
        table: the table of a corpus, for people; see :func:`preprocess.pipeline.report.table`.
    """

    encode: Callable[[Tokenizer, Example], Encoded | Reject]
    ids: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ("id",)
    dictionaries: tuple[str, ...] = ("dict.txt",)
    settings: Mapping[str, object] = field(default_factory=dict)
    table: Callable[..., str] = report.table

    def dtypes(self, id_dtype: np.dtype) -> dict[str, np.dtype]:
        """The type of every array, given that of dictionary ids."""
        return dict.fromkeys(self.ids, id_dtype) | dict.fromkeys(self.numbers, np.dtype(np.int32))


def prefix(split: str, array: str) -> str:
    """fairseq's name of a dataset, without its suffix."""
    return f"{split}.{array}" if array else split


def text_layout(*sides: str, keep_text: bool = False) -> Layout:
    """Every text of an example is a sequence of ids that ends with ``</s>``, as fairseq's own preprocessing writes it.

    Args:
        sides: names of the texts. Of several, the last is also written on one line, to ``{split}.summary.txt``; one
            alone is the layout of a language model.
        keep_text: whether to write the last text itself too, to ``{split}.text.txt``, a blank line after each.
    """
    pair = len(sides) > 1
    ids = tuple(f"{'-'.join(sides)}.{side}" for side in sides) if pair else ("",)
    texts = ("id", *["summary"] * pair, *["text"] * keep_text)
    return Layout(
        encode=functools.partial(encode_texts, ids=ids, wanted=texts),
        ids=ids,
        texts=texts,
        dictionaries=tuple(f"dict.{side}.txt" for side in sides) if pair else ("dict.txt",),
        settings={"keep_text": True} if keep_text else {},
    )


def encode_texts(
    tokenizer: Tokenizer, example: Example, ids: tuple[str, ...], wanted: tuple[str, ...]
) -> Encoded | Reject:
    """The texts of an example for :func:`text_layout`."""
    encoded = tokenizer.encode_batch(example.texts)
    if not all(map(len, encoded)):
        return Reject("nothing to encode: the tokenizer leaves no token of a text")
    last = example.texts[-1]
    texts = {"id": one_line(example.id)}
    if "summary" in wanted:
        texts["summary"] = one_line(last)
    if "text" in wanted:
        texts["text"] = replace_lone_surrogates(last) + "\n"
    return Encoded({name: np.append(sequence, EOS) for name, sequence in zip(ids, encoded, strict=True)}, texts)


def one_line(text: str) -> str:
    """The text with every run of whitespace and line separators made one space."""
    return " ".join(replace_lone_surrogates(text).split())
