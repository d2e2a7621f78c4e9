"""fairseq's memory-mapped datasets, read with numpy alone.

A dataset is two files: ``.bin``, all integers one after the other, and ``.idx``: magic, version, type, number of
sequences, their lengths (int32), their byte offsets (int64).
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

MAGIC = b"MMIDIDX\x00\x00"
DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16, 9: np.uint32}  # by code


class Sequences:
    """Sequences of integers of any lengths, one after the other in a file.

    Args:
        prefix: path of the ``.bin`` and ``.idx`` files without their suffix.

    Attributes:
        values: (N,) all integers, memory-mapped.
        bounds: (n + 1,) int64; sequence k is ``values[bounds[k]:bounds[k + 1]]``.

    Raises:
        FileNotFoundError: a file is not there.
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
    """(n,) int32 lengths of a dataset's sequences, without its ``.bin``; errors as :func:`read_index`."""
    return read_index(Path(f"{prefix}.idx"))[1]


def read_index(path: Path) -> tuple[np.dtype, np.ndarray]:
    """Type of a dataset's integers, and (n,) int32 lengths of its sequences.

    Args:
        path: the ``.idx`` file.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it is damaged, or something else.
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
