"""fairseq's dictionary file and number types, without importing fairseq."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

BOS, PAD, EOS, UNK = range(4)
SPECIAL_SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")


def read_symbols(path: Path) -> list[str]:
    """The symbols of a fairseq dictionary file, in order; see :func:`read_counts`."""
    return list(read_counts(path))


def read_counts(path: Path) -> dict[str, int]:
    """The symbols of a fairseq dictionary file with their counts; symbol k has index ``len(SPECIAL_SYMBOLS) + k``.

    Args:
        path: a file of lines "symbol count".

    Raises:
        ValueError: a line is not of that form, or names a symbol a second time.
    """
    counts: dict[str, int] = {}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            symbol, _, count = line.rstrip().rpartition(" ")
            if not (count.isascii() and count.isdigit() and len(count) < 19):
                raise ValueError(f'{path}, line {number}: expected "symbol count", found {line.rstrip()!r}')
            if symbol in counts or symbol in SPECIAL_SYMBOLS:
                raise ValueError(f"{path}, line {number}: symbol {symbol!r} is there a second time")
            counts[symbol] = int(count)
    return counts


def symbols_digest(symbols: Iterable[str]) -> str:
    """Digest symbols in their order (SHA-256, hexadecimal)."""
    return hashlib.sha256("\n".join(symbols).encode("utf-8", "surrogatepass")).hexdigest()


def smallest_dtype(dictionary_size: int) -> np.dtype:
    """The type in which fairseq stores the ids of a dictionary of that size."""
    return np.dtype(np.uint16 if dictionary_size < 65500 else np.uint32)


def replace_lone_surrogates(text: str) -> str:
    r"""The text with every lone surrogate, which has no UTF-8, replaced by U+FFFD.

    JSON may hold them (``"\ud800"``); two neighbouring halves of one character are put together.
    """
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
