"""Files that get their names when they are complete, so that a killed run leaves no half file under a good name.

A lock on a folder lets one process at a time write to it.
"""

import contextlib
import errno
import fcntl
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

SUFFIX = ".unfinished"
LOCK = ".lock"

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def whole_file(path: Path, flush: bool = False) -> Iterator[Path]:
    """Yield a name beside the final one to write to; rename that file when the block ends without an error.

    Args:
        path: the final name. Whatever has it before keeps it until the new file is complete.
        flush: wait until the disk has the file before it is renamed, so that not even a loss of power leaves an
            incomplete file under the final name.
    """
    unfinished = path.with_name(path.name + SUFFIX)
    unfinished.unlink(missing_ok=True)  # it may be a link to a file that is in use
    try:
        yield unfinished
        if flush:
            _flush(unfinished)
        os.replace(unfinished, path)
        if flush:
            _flush_folder(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file beside its final name and rename it when it is complete."""
    with whole_file(path) as unfinished, open(unfinished, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(path: Path) -> None:
    try:
        _flush(path)
    except OSError as error:  # some network file systems flush files only
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def lock_folder(folder: Path) -> int | None:
    """Lock a folder for this process alone, until the process ends, however it does, or closes the file.

    The lock is the operating system's, on the file ``.lock``. A lock of ``flock`` would live on in the processes that
    this one starts, which may outlive it by seconds.

    Returns:
        The open file; None where the file system cannot lock, which a warning says.

    Raises:
        BlockingIOError: another process has locked it.
    """
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise BlockingIOError(error.errno, "another process writes to this folder", str(folder)) from None
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        logger.warning(f"{folder} cannot be locked on its file system: start only one process there")
        return None
    return descriptor
