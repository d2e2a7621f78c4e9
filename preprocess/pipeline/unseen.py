"""Counts the tokens of a data folder that its dictionary has never seen: symbols of count 0, and ``<unk>``."""

from collections.abc import Iterable, Iterator

import numpy as np

from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS, UNK, read_counts
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.tokenizers import load_tokenizer

_BLOCK = 2**22  # tokens counted at a time
_SHOWN = 3  # symbols named in a line


def report(folder: DataFolder, splits: Iterable[str]) -> list[str]:
    """Return a line for each split with tokens that whatever was trained with this dictionary has not seen.

    A dictionary whose counts are all the same counts nothing: there only ``<unk>`` is reported.

    Args:
        folder: the data folder, of a kind with a tokenizer.
        splits: its splits.
    """
    if not folder.layout.dictionaries or not folder.tokenizer_path.is_dir():
        return []
    counts = np.array(list(read_counts(folder.dictionary()).values()), np.int64)
    is_unseen = np.concatenate([np.zeros(len(SPECIAL_SYMBOLS), bool), (counts == 0) & (counts.max(initial=0) > 0)])
    is_unseen[UNK] = True
    return [line for split in splits for line in _lines(folder, split, is_unseen)]


def _lines(folder: DataFolder, split: str, is_unseen: np.ndarray) -> Iterator[str]:
    found = sum(count_symbols(folder.sequences(split, name), len(is_unseen)) for name in folder.layout.ids)
    unseen = np.where(is_unseen, found, 0)
    if unseen.any():
        texts = load_tokenizer(folder.path).symbol_texts()
        common = [index for index in np.argsort(-unseen, kind="stable")[:_SHOWN].tolist() if unseen[index]]
        names = ("<unk>" if index == UNK else repr(texts[index].decode("utf-8", "replace")) for index in common)
        shown = ", ".join(f"{name} {unseen[index]:,}" for name, index in zip(names, common, strict=True))
        share = 100 * unseen.sum() / found.sum()
        yield (
            f"{split}: {unseen.sum():,} of {found.sum():,} tokens ({share:.2f} %) are unknown to the dictionary, which "
            f"has count 0 for them: {shown}"
        )


def count_symbols(sequences: Sequences, size: int) -> np.ndarray:
    """(size,) int64, how often each symbol of a dictionary occurs."""
    values = sequences.values
    blocks = (values[first : first + _BLOCK] for first in range(0, len(values), _BLOCK))
    return sum((np.bincount(block, minlength=size) for block in blocks), np.zeros(size, np.int64))
