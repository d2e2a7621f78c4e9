"""fairseq's dictionaries: a file that is damaged, or is another one, ends in one sentence."""

from collections.abc import Callable
from typing import Any

from fairseq_poolingformer.patches.patching import replace
from fairseq_poolingformer.text.dictionary import read_entries

OVERWRITE = "#fairseq:overwrite"  # ends the line of a symbol that may be there already


class DictionaryError(ValueError):
    """A dictionary that cannot be read; the message names its file and line."""


def apply() -> None:
    """Patch the reading of dictionaries."""
    from fairseq.data import Dictionary

    replace(Dictionary, "add_from_file", checked)


def checked(original: Callable) -> Callable:
    """Check a dictionary before fairseq reads it, which says neither the file nor the line of most faults."""

    def add_from_file(self: Any, f: Any) -> None:
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

    return add_from_file
