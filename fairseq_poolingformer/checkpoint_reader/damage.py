"""Damage to checkpoint files, and the errors of files that are not what they should be."""

import os
import pickle
import struct
import zipfile
import zlib

from fairseq_poolingformer.checkpoint_reader.bounds import Malformed, Refused
from fairseq_poolingformer.checkpoint_reader.files import LEGACY, ZIP
from fairseq_poolingformer.checkpoint_reader.zip_archive import ZipArchive

# Python, torch and fairseq raise these for what they cannot make sense of; each was seen on a file with one flipped
# bit, or on a file that describes more than the memory holds.
DAMAGE = (
    *(pickle.UnpicklingError, EOFError, RuntimeError, LookupError, TypeError, ValueError, AttributeError, MemoryError),
    *(AssertionError, ArithmeticError, OSError, struct.error, zipfile.BadZipFile, zlib.error),
)


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
            archive = ZipArchive(file)
            for record in archive.records.values():
                archive.check(record)
    except (Malformed, Refused, OSError) as error:
        return first_line(error)
    return None


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type where it has none."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
