"""The archives that checkpoints are: damage, and sizes beyond reason, found before anything is read from them."""

import logging
import os
import pickle
import struct
import zipfile
import zlib
from pathlib import Path

logger = logging.getLogger(__name__)

# Python, torch and zipfile raise these for bytes that they cannot make sense of; each was seen on a file with one
# flipped bit, or on a file that describes more than the memory holds.
DAMAGE = (
    *(pickle.UnpicklingError, EOFError, RuntimeError, LookupError, TypeError, ValueError, AttributeError, MemoryError),
    *(AssertionError, ArithmeticError, OSError, struct.error, zipfile.BadZipFile, zlib.error),
)
ZIP, LEGACY = b"PK\x03\x04", b"\x80\x02"  # first bytes of a zip archive, and of the pickle that torch saved before 1.6
LARGEST_GROWTH = 16  # times; torch compresses nothing, and compressed weights are hardly smaller


def damage(path: str | os.PathLike) -> str | None:
    """Say how a checkpoint file is damaged; None when every byte is what was written.

    Args:
        path: a file of ``torch.save``; of those in the format before torch 1.6, which has no checksums, only the
            beginning is checked.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(4)
        if head.startswith(LEGACY):
            return None
        if head != ZIP:
            return "it is not a file of torch" if head else "it is empty"
        with zipfile.ZipFile(path) as archive:
            return _damage(Path(path), archive)
    except DAMAGE as error:
        return first_line(error)


def _damage(path: Path, archive: zipfile.ZipFile) -> str | None:
    records = archive.infolist()
    fault = growth(path.stat().st_size, sum(record.file_size for record in records))
    if fault is not None:
        return fault
    if not any(record.CRC for record in records):
        logger.warning(f"{path} was saved without checksums, so damage to it cannot be seen")
        return None
    broken = archive.testzip()
    return None if broken is None else f"the checksum of {broken} in it is wrong"


def growth(size: int, unpacked: int) -> str | None:
    """Say that an archive would grow beyond reason; None if it would not.

    Args:
        size: bytes of the archive.
        unpacked: bytes that it declares to hold.
    """
    if unpacked <= LARGEST_GROWTH * max(size, 2**20):
        return None
    return f"its {size:,} bytes would become {unpacked:,}, so it was not read"


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type where it has none."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
