"""fairseq's memory-mapped datasets, read and written with numpy alone.

A dataset is two files: ``.bin``, all integers one after the other, and ``.idx``: magic, version, type, number of
sequences, their lengths (int32), their byte offsets (int64). fairseq's own writer needs torch and a tensor for each
sequence.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_poolingformer.text.atomic_write import atomic_write

MAGIC = b"MMIDIDX\x00\x00"
DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16, 9: np.uint32}  # by code
CODES = {np.dtype(dtype): code for code, dtype in DTYPES.items()}


class Sequences:
    """Sequences of integers in a file; sequence k is ``read(bounds[k], bounds[k + 1])``, ``bounds`` (n + 1,) int64."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = Path(prefix)
        dtype, sizes = read_index(Path(f"{prefix}.idx"))
        self.bounds = _bounds(sizes)
        path = Path(f"{prefix}.bin")
        _check_size(path, int(self.bounds[-1]) * dtype.itemsize)
        self._values = np.memmap(path, dtype, mode="r") if self.bounds[-1] else np.empty(0, dtype)

    @property
    def sizes(self) -> np.ndarray:
        """(n,) lengths of the sequences."""
        return np.diff(self.bounds)

    @property
    def values(self) -> np.ndarray:
        """(N,) all integers, memory-mapped."""
        return self.read(0, self.num_values)

    @property
    def num_values(self) -> int:
        """N, how many integers all sequences have together."""
        return len(self._values)

    def read(self, first: int, end: int) -> np.ndarray:
        """The integers from ``first`` to ``end``, memory-mapped."""
        return self._values[first:end]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.read(self.bounds[index], self.bounds[index + 1])

    def __reduce__(self):
        return Sequences, (self.prefix,)  # a pickled memory map would carry the whole file


def _bounds(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def _check_size(path: Path, expected: int) -> None:
    if (size := path.stat().st_size) != expected:
        raise ValueError(f"{path}: has {size:,} bytes where its index says {expected:,}; preprocess again")


def check_dataset(prefix: Path) -> None:
    """Check that each sequence of a dataset lies in its ``.bin``; raises what :class:`Sequences` raises."""
    dtype, sizes = read_index(Path(f"{prefix}.idx"))
    _check_size(Path(f"{prefix}.bin"), int(sizes.sum(dtype=np.int64)) * dtype.itemsize)


def read_sizes(prefix: Path) -> np.ndarray:
    """(n,) int32 lengths of a dataset's sequences; needs its ``.idx`` only. Errors are those of :func:`read_index`."""
    return read_index(Path(f"{prefix}.idx"))[1]


def read_index(path: Path) -> tuple[np.dtype, np.ndarray]:
    """Return the type of a dataset's integers, and (n,) int32 lengths of its sequences."""
    head_size = len(MAGIC) + struct.calcsize("<QBQ")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: not a file")  # a pipe would never end
    with open(path, "rb") as file:
        head = file.read(head_size)
        if len(head) < head_size or not head.startswith(MAGIC):
            raise ValueError(
                f"{path}: not an index of fairseq's memory-mapped format; preprocess again, fairseq-preprocess with "
                "--dataset-impl mmap"
            )
        version, code, count = struct.unpack("<QBQ", head[len(MAGIC) :])
        # nothing is read or allocated by a number of the file before the file is known to have as much
        if version != 1 or code not in DTYPES or os.fstat(file.fileno()).st_size != head_size + 12 * count:
            raise ValueError(f"{path}: damaged; preprocess again")
        sizes = np.frombuffer(file.read(4 * count), np.int32)
        pointers = np.frombuffer(file.read(8 * count), np.int64)
    dtype = np.dtype(DTYPES[code])
    if (sizes < 0).any() or not np.array_equal(pointers, _bounds(sizes)[:-1] * dtype.itemsize):
        raise ValueError(f"{path}: damaged, its sequences do not follow one another; preprocess again")
    return dtype, sizes


class SequencesWriter:
    """Writes sequences beside their final names, and renames the files when the block ends without an error."""

    def __init__(self, prefix: Path, dtype: np.dtype) -> None:
        self._prefix = Path(prefix)
        self._dtype = np.dtype(dtype)
        self._sizes: list[np.ndarray] = []

    def __enter__(self) -> SequencesWriter:
        self._files = contextlib.ExitStack()
        bin_path = self._files.enter_context(atomic_write(Path(f"{self._prefix}.bin")))
        self._bin = self._files.enter_context(open(bin_path, "wb"))
        return self

    def append(self, integers: np.ndarray) -> None:
        """Append one sequence."""
        self._sizes.append(np.array([len(integers)], np.int32))
        self._bin.write(integers.astype(self._dtype, copy=False).tobytes())

    def append_file(self, file: Path, sizes: np.ndarray, take: np.ndarray) -> None:
        """Append sequences of a file that holds integers of the writer's type one after the other."""
        sizes = np.asarray(sizes, dtype=np.int32)
        self._sizes.append(sizes[take])
        bounds = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]) * self._dtype.itemsize
        edges = np.flatnonzero(np.diff(np.concatenate([[False], take, [False]])))
        with open(file, "rb") as integers:
            for first, end in edges.reshape(-1, 2):
                integers.seek(bounds[first])
                remaining = int(bounds[end] - bounds[first])
                while remaining:
                    block = integers.read(min(remaining, 2**20))
                    if not block:
                        raise ValueError(f"{file}: {remaining} bytes shorter than its lengths say")
                    self._bin.write(block)
                    remaining -= len(block)

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            sizes = np.concatenate([np.empty(0, np.int32), *self._sizes])
            pointers = (np.cumsum(sizes, dtype=np.int64) - sizes) * self._dtype.itemsize
            head = MAGIC + struct.pack("<QBQ", 1, CODES[self._dtype], len(sizes))
            with atomic_write(Path(f"{self._prefix}.idx")) as path:
                path.write_bytes(head + sizes.tobytes() + pointers.tobytes())
        self._files.__exit__(*error)
