"""One split of a data folder, memory-mapped: the base of the classes that name its arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np

from fairseq_poolingformer.text.data_folder import DataFolder, Layout
from fairseq_poolingformer.text.sequences import Sequences

SomeSplit = TypeVar("SomeSplit", bound="Split")


@dataclass(frozen=True)
class Split:
    """A subclass is a frozen dataclass whose fields are arrays of the layout, one sequence for each example."""

    layout: ClassVar[Layout]

    @classmethod
    def open(cls: type[SomeSplit], folder: Path, split: str) -> SomeSplit:
        """Map a split of a data folder."""
        data = DataFolder(Path(folder), cls.layout)
        arrays = cls(**{field.name: data.sequences(split, field.name) for field in fields(cls)})
        first = arrays._first()
        for field in fields(cls):
            sequences = getattr(arrays, field.name)
            if len(sequences) != len(arrays):
                raise ValueError(
                    f"{sequences.prefix}: {len(sequences)} examples where {first.prefix} has {len(arrays)}; "
                    "preprocess again"
                )
        arrays.check()
        return arrays

    @classmethod
    def lines(cls, folder: Path, split: str, text: str = "id") -> list[str]:
        """The lines of a text of a split, one for each example; errors as :meth:`open`."""
        with open(DataFolder(Path(folder), cls.layout).text(split, text), encoding="utf-8", newline="\n") as file:
            return file.read().split("\n")[:-1]

    def __len__(self) -> int:
        return len(self._first())

    def check(self) -> None:
        """Raise ValueError where the arrays contradict each other; subclasses compare theirs with :func:`refuse`."""

    def _first(self) -> Sequences:
        return getattr(self, fields(self)[0].name)


def sums(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """(n,) int64 sums of the values from each of the (n + 1,) bounds to the next one."""
    return np.diff(np.concatenate([np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)])[bounds])


def refuse(sequences: Sequences, is_wrong: np.ndarray, what: str) -> None:
    """Raise ValueError with the first example at which ``is_wrong``, (n,) bool, is True."""
    if is_wrong.any():
        raise ValueError(f"{sequences.prefix}, example {int(is_wrong.argmax())}: {what}; preprocess again")
