"""Where the arrays of all tokens of a document in chunks are: on the device, in the host's memory, or in files."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

GIB = 2**30


class Place:
    """The device itself.

    Attributes:
        device: where rows of the arrays are used, if not where they are.
    """

    device: torch.device | None = None

    def zeros(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """An array of zeros; ``device`` is that of what it is made from."""
        return torch.zeros(*shape, dtype=dtype, device=device)

    def check(self, size: int) -> None:
        """Refuse, before a document begins, arrays of so many bytes in all that would not find room."""

    def trim(self) -> None:
        """Give back the memory of what has been read and written."""


class HostMemory(Place):
    """The host's memory, pinned for a GPU, which is ``device``."""

    device: torch.device

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def zeros(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, pin_memory=self.device.type == "cuda")


class Files(Place):
    """Files without a name in a folder, mapped into memory, whose room is taken before they are written.

    They end with the tensors, however the process ends. A tensor of theirs is one of the CPU's.

    Args:
        folder: on a disk; one in memory, as some systems' ``/tmp``, would save nothing. None for the folder of
            temporary files, which the environment's ``TMPDIR`` names.

    Attributes:
        most: the most bytes of files at a time so far.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(tempfile.gettempdir() if folder is None else folder)
        self._maps: WeakSet[Any] = WeakSet()
        self.most = 0

    def check(self, size: int) -> None:
        free = shutil.disk_usage(self.folder).free
        if size > free:
            raise self._too_small(size, free)

    def zeros(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        size = max(1, prod(shape)) * dtype.itemsize
        with tempfile.TemporaryFile(dir=self.folder, prefix="chunks-") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)  # a full disk would end the process when it is written
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise
                raise self._too_small(size, shutil.disk_usage(self.folder).free) from None
            mapped = mmap.mmap(file.fileno(), size)
        self._maps.add(mapped)
        self.most = max(self.most, sum(map(len, self._maps)))
        storage = torch.frombuffer(mapped, dtype=dtype).untyped_storage()
        whole = torch.empty(0, dtype=dtype)  # not a view, of whose parts autograd would copy the gradients
        return whole.set_(storage, 0, tuple(shape))  # type: ignore[call-overload]

    def trim(self) -> None:
        for mapped in list(self._maps):
            mapped.madvise(mmap.MADV_DONTNEED)  # of a shared file: what was written stays in the file

    def _too_small(self, size: int, free: int) -> OSError:
        return OSError(
            errno.ENOSPC,
            f"{size / GIB:.1f} GiB are needed for the arrays of a document in chunks, {free / GIB:.1f} are free: "
            "set TMPDIR to a folder on a larger disk",
            str(self.folder),
        )


def place_for(device: torch.device) -> Place:
    """The place off a device: the host's memory for a GPU, files for a CPU."""
    return Files() if device.type == "cpu" else HostMemory(device)
