"""The errors of files that are not what they should be; who prints them prints their message alone."""

import pickle
import struct
import zipfile
import zlib

# Python, torch and fairseq raise these for what they cannot make sense of; each was seen on a file with one flipped
# bit, or on a file that describes more than the memory holds.
DAMAGE = (
    *(pickle.UnpicklingError, EOFError, RuntimeError, LookupError, TypeError, ValueError, AttributeError, MemoryError),
    *(AssertionError, ArithmeticError, OSError, struct.error, zipfile.BadZipFile, zlib.error),
)


class Malformed(ValueError):
    """A file that is not what ``torch.save`` writes; the message says where."""


class Refused(ValueError):
    """A file that holds something else than data, or more than it may; the message says what."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded, with the file and the remedy in the message."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint file that is no longer what was written; the message says how."""


class MissingCheckpointError(CheckpointError, FileNotFoundError):
    """A checkpoint that is not there."""


class ConfigurationError(ValueError):
    """A checkpoint's configuration that asks for more than a model; the message says which part."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type where it has none."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
