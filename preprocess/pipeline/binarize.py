"""fairseq's memory-mapped dataset format, written from parts that are already binary.

:mod:`fairseq_poolingformer.text.sequences` says what it is, and reads it. fairseq's own writer needs torch and a tensor
for each sequence.
"""

import contextlib
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fairseq_poolingformer.text.sequences import DTYPES, MAGIC
from fairseq_poolingformer.text.whole_file import whole_file

_CODE_OF_DTYPE = {np.dtype(dtype): code for code, dtype in DTYPES.items()}


class MMapWriter:
    """Writes one dataset beside its final name; leaving the ``with`` block well renames it."""

    def __init__(self, prefix: Path, dtype: np.dtype):
        self._prefix = Path(prefix)
        self._dtype = dtype
        self._sizes: list[np.ndarray] = []

    def __enter__(self) -> "MMapWriter":
        self._files = contextlib.ExitStack()
        bin_path = self._files.enter_context(whole_file(self._path(".bin")))
        self._bin = self._files.enter_context(open(bin_path, "wb"))
        return self

    def add(self, file: Path, sizes: np.ndarray, take: np.ndarray) -> None:
        """Appends sequences of a file that holds them one after the other.

        Args:
            file: their integers, of the writer's type.
            sizes: (n,) lengths of all that the file holds.
            take: (n,) bool, which to append.

        Raises:
            ValueError: the file is shorter than the lengths say.
        """
        sizes = np.asarray(sizes, dtype=np.int32)
        self._sizes.append(sizes[take])
        bounds = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]) * self._dtype.itemsize
        edges = np.flatnonzero(np.diff(np.concatenate([[False], take, [False]])))
        with open(file, "rb") as integers:
            for first, end in edges.reshape(-1, 2):
                integers.seek(bounds[first])
                self._copy(integers, int(bounds[end] - bounds[first]))

    def append(self, integers: np.ndarray) -> None:
        """Appends one sequence.

        Args:
            integers: (n,) of the writer's type.
        """
        self._sizes.append(np.array([len(integers)], np.int32))
        self._bin.write(integers.astype(self._dtype, copy=False).tobytes())

    def _copy(self, integers: BinaryIO, left: int) -> None:
        while left:
            block = integers.read(min(left, 2**20))
            if not block:
                raise ValueError(f"{integers.name}: {left} bytes shorter than its lengths say")
            self._bin.write(block)
            left -= len(block)

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            with whole_file(self._path(".idx")) as path:
                self._write_index(path)
        self._files.__exit__(*error)

    def _write_index(self, path: Path) -> None:
        sizes = np.concatenate([np.empty(0, np.int32), *self._sizes])
        ends = np.cumsum(sizes, dtype=np.int64)
        with open(path, "wb") as index:
            index.write(MAGIC + struct.pack("<QBQ", 1, _CODE_OF_DTYPE[self._dtype], len(sizes)))
            index.write(sizes.tobytes())
            index.write(((ends - sizes) * self._dtype.itemsize).tobytes())

    def _path(self, suffix: str) -> Path:
        return self._prefix.with_name(self._prefix.name + suffix)


def write_whole(path: Path, lines: Iterable[str]) -> None:
    """Writes a text file beside its final name and renames it when whole."""
    with whole_file(path) as unfinished, open(unfinished, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)
