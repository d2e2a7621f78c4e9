"""How much a file may build: counted while it is read, before anything is made."""

from collections.abc import Iterable
from typing import Any

from fairseq_poolingformer.checkpoint_reader.errors import Refused

MOST_VALUES = 2**21  # instructions of all pickles of a file; a model of 3,000 tensors has 60,000
MOST_BYTES = 2**26  # of all pickles of a file, without the tensors' storages
MOST_NUMBER_KEYS = 2**15  # Python does not protect dictionaries from numbers that are chosen to collide
LARGEST_GROWTH = 16  # times; torch compresses nothing, and compressed weights are hardly smaller

NUMBERS = (bool, int, float, type(None))


class Budget:
    """How much a file may still build."""

    def __init__(self) -> None:
        self._values = MOST_VALUES
        self._bytes = MOST_BYTES
        self._number_keys = MOST_NUMBER_KEYS

    def spend(self, values: int) -> None:
        """Take values: instructions, or entries that an instruction copies."""
        self._values -= values
        if self._values < 0:
            raise Refused(f"it describes more than {MOST_VALUES:,} values")

    def spend_bytes(self, size: int) -> None:
        """Take bytes: those of a pickle, or those that an instruction copies."""
        self._bytes -= size
        if self._bytes < 0:
            raise Refused(f"it describes more than {MOST_BYTES:,} bytes beside its tensors")

    def check_keys(self, keys: Iterable[Any]) -> None:
        """Refuse keys of a dictionary, or elements of a set, that are not text or numbers."""
        for key in keys:
            kind = type(key)
            if kind is str:
                continue
            if kind not in NUMBERS or (kind is int and not -(2**63) <= key < 2**63):
                raise Refused(
                    f"a dictionary or set in it has a {kind.__name__} as a key, which is not text or a number"
                )
            self._number_keys -= 1
            if self._number_keys < 0:
                raise Refused(f"it has more than {MOST_NUMBER_KEYS:,} numbers as keys")


def shown(text: str) -> str:
    """A text of a file for a message: short, and without characters that steer a terminal."""
    return text[:100] if text.isprintable() else ascii(text[:100])


def growth(size: int, unpacked: int) -> str | None:
    """Say that an archive would grow beyond reason; None if it would not."""
    if unpacked <= LARGEST_GROWTH * max(size, 2**20):
        return None
    return f"its {size:,} bytes would become {unpacked:,}, so it was not read"
