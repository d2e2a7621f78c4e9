"""fairseq's dictionary file and number types, without importing fairseq."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

BOS, PAD, EOS, UNK = range(4)
LONGEST_LINE = 2**16  # characters
COUNT = re.compile(r"-?[0-9]{1,18}")
DIGESTS = "dictionaries"  # in a checkpoint's task state: the dictionaries' file names and digests
SPECIAL_SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")

# Marks of places: question, candidate of WikiHop, title and sentence of HotpotQA (Longformer, §6 and appendix D). No
# data folder holds them: a task appends them to its dictionary, after <mask>. All tasks have these, so that the
# checkpoint of one fits the next; a task may have more.
MARKS = ("[q]", "[/q]", "[ent]", "[/ent]", "<t>", "</t>", "[s]")


def read_symbols(path: Path) -> list[str]:
    """The symbols of a fairseq dictionary file, in order; see :func:`read_counts`."""
    return list(read_counts(path))


def read_counts(path: Path) -> dict[str, int]:
    """The symbols of a fairseq dictionary file with their counts; symbol k has index ``len(SPECIAL_SYMBOLS) + k``."""
    counts: dict[str, int] = {}
    for number, symbol, count, _ in read_entries(path):
        if symbol in counts or symbol in SPECIAL_SYMBOLS:
            raise ValueError(f"{path}, line {number}: symbol {symbol[:100]!r} is there a second time")
        counts[symbol] = count
    return counts


def read_entries(path: str | Path, flag: str | None = None) -> Iterator[tuple[int, str, int, bool]]:
    """The lines of a fairseq dictionary file: their numbers, symbols and counts, and whether they end in a flag."""
    number = 0
    if Path(path).exists() and not Path(path).is_file():
        raise ValueError(f"{path}: not a file")  # a pipe would never end
    with open(path, encoding="utf-8") as lines:
        try:
            while line := lines.readline(LONGEST_LINE):
                number += 1
                rest = line.rstrip()
                is_flagged = flag is not None and rest.endswith(f" {flag}")
                symbol, blank, count = (rest.removesuffix(f" {flag}") if is_flagged else rest).rpartition(" ")
                if not blank or not COUNT.fullmatch(count):
                    raise ValueError(f'{path}, line {number}: expected "symbol count", found {rest[:100]!r}')
                yield number, symbol, int(count), is_flagged
        except UnicodeDecodeError:
            raise ValueError(f"{path}, after line {number}: not UTF-8") from None


def symbols_digest(symbols: Iterable[str]) -> str:
    """Digest symbols in their order (SHA-256, hexadecimal)."""
    return hashlib.sha256("\n".join(symbols).encode("utf-8", "surrogatepass")).hexdigest()


def smallest_dtype(dictionary_size: int) -> np.dtype:
    """The type in which fairseq stores the ids of a dictionary of that size."""
    return np.dtype(np.uint16 if dictionary_size < 65500 else np.uint32)
