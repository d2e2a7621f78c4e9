"""fairseq's memory-mapped datasets, read and written with numpy alone.

A dataset is two files: ``.bin``, all integers one after the other, and ``.idx``: magic, version, type, number of
sequences, their lengths (int32), their byte offsets (int64). fairseq's own writer needs torch and a tensor for each
sequence.
"""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fairseq_poolingformer.text.whole_file import whole_file

MAGIC = b"MMIDIDX\x00\x00"
DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16, 9: np.uint32}  # by code
CODES = {np.dtype(dtype): code for code, dtype in DTYPES.items()}


class Sequences:
    """Sequences of integers of any lengths, one after the other in a file.

    Args:
        prefix: path of the ``.bin`` and ``.idx`` files without their suffix.

    Attributes:
        values: (N,) all integers, memory-mapped.
        bounds: (n + 1,) int64; sequence k is ``values[bounds[k]:bounds[k + 1]]``.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = Path(prefix)
        dtype, sizes = read_index(Path(f"{prefix}.idx"))
        self.bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
        path, expected = Path(f"{prefix}.bin"), int(self.bounds[-1]) * dtype.itemsize
        if path.stat().st_size != expected:
            raise ValueError(
                f"{path}: has {path.stat().st_size:,} bytes where its index says {expected:,}; preprocess again"
            )
        self.values = np.memmap(path, dtype, mode="r") if expected else np.empty(0, dtype)

    @property
    def sizes(self) -> np.ndarray:
        """(n,) lengths of the sequences."""
        return np.diff(self.bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.values[self.bounds[index] : self.bounds[index + 1]]

    def __reduce__(self):
        return Sequences, (self.prefix,)  # a pickled memory map would carry the whole file


def read_sizes(prefix: Path) -> np.ndarray:
    """(n,) int32 lengths of a dataset's sequences; needs its ``.idx`` only. Errors are those of :func:`read_index`."""
    return read_index(Path(f"{prefix}.idx"))[1]


def read_index(path: Path) -> tuple[np.dtype, np.ndarray]:
    """Return the type of a dataset's integers, and (n,) int32 lengths of its sequences.

    Args:
        path: the ``.idx`` file.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: the file is damaged, or something else.
    """
    head_size = len(MAGIC) + struct.calcsize("<QBQ")
    with open(path, "rb") as file:
        head = file.read(head_size)
        if len(head) < head_size or not head.startswith(MAGIC):
            raise ValueError(f"{path}: not an index of fairseq's memory-mapped format; preprocess again")
        _, code, count = struct.unpack("<QBQ", head[len(MAGIC) :])
        sizes = np.frombuffer(file.read(4 * count), np.int32)
    if code not in DTYPES or len(sizes) != count:
        raise ValueError(f"{path}: damaged; preprocess again")
    return np.dtype(DTYPES[code]), sizes


class SequencesWriter:
    """Writes sequences beside their final names, and renames the files when the ``with`` block ends without an error.

    Args:
        prefix: path of the ``.bin`` and ``.idx`` files without their suffix.
        dtype: type of the integers.
    """

    def __init__(self, prefix: Path, dtype: np.dtype) -> None:
        self._prefix = Path(prefix)
        self._dtype = np.dtype(dtype)
        self._sizes: list[np.ndarray] = []

    def __enter__(self) -> SequencesWriter:
        self._files = contextlib.ExitStack()
        bin_path = self._files.enter_context(whole_file(Path(f"{self._prefix}.bin")))
        self._bin = self._files.enter_context(open(bin_path, "wb"))
        return self

    def append(self, integers: np.ndarray) -> None:
        """Append one sequence.

        Args:
            integers: (n,) integers that the writer's type can hold.
        """
        self._sizes.append(np.array([len(integers)], np.int32))
        self._bin.write(integers.astype(self._dtype, copy=False).tobytes())

    def append_file(self, file: Path, sizes: np.ndarray, take: np.ndarray) -> None:
        """Append sequences of a file that holds integers of the writer's type one after the other.

        Args:
            file: the integers.
            sizes: (n,) lengths of all sequences in the file.
            take: (n,) bool, which of them to append.

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

    def _copy(self, integers: BinaryIO, remaining: int) -> None:
        while remaining:
            block = integers.read(min(remaining, 2**20))
            if not block:
                raise ValueError(f"{integers.name}: {remaining} bytes shorter than its lengths say")
            self._bin.write(block)
            remaining -= len(block)

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            with whole_file(Path(f"{self._prefix}.idx")) as path:
                self._write_index(path)
        self._files.__exit__(*error)

    def _write_index(self, path: Path) -> None:
        sizes = np.concatenate([np.empty(0, np.int32), *self._sizes])
        ends = np.cumsum(sizes, dtype=np.int64)
        with open(path, "wb") as index:
            index.write(MAGIC + struct.pack("<QBQ", 1, CODES[self._dtype], len(sizes)))
            index.write(sizes.tobytes())
            index.write(((ends - sizes) * self._dtype.itemsize).tobytes())
