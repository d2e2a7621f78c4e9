"""Dictionaries and datasets: one that is damaged, or is another one, ends in a sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_poolingformer.text.dictionary import read_entries
from fairseq_poolingformer.text.sequences import check_dataset

OVERWRITE = "#fairseq:overwrite"  # ends the line of a symbol that may be there already


class DictionaryError(ValueError):
    """A dictionary that cannot be read; the message names its file and line."""


def check_dictionary(original: Callable, self: Any, f: Any) -> None:
    """Check a dictionary before fairseq reads it, which says neither the file nor the line of most faults."""
    from fairseq.file_io import PathManager

    if isinstance(f, str):
        seen = set(self.symbols)
        try:
            for number, symbol, _, is_overwritten in read_entries(PathManager.get_local_path(f), OVERWRITE):
                if symbol in seen and not is_overwritten:
                    raise ValueError(f"{f}, line {number}: symbol {symbol[:100]!r} is there a second time")
                seen.add(symbol)
        except ValueError as error:
            raise DictionaryError(f"{error}; take the dictionary from where it was made again") from None
    original(self, f)


def check_stored_dataset(original: Callable, path: str, impl: str, *args: Any, **kwargs: Any) -> Any:
    """Check a memory-mapped dataset before fairseq opens it; fairseq trusts its index, whoever wrote it."""
    if impl == "mmap" and Path(f"{path}.idx").exists() and Path(f"{path}.bin").exists():
        check_dataset(path)
    return original(path, impl, *args, **kwargs)
