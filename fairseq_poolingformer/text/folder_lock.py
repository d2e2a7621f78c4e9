"""A lock on a folder that one process at a time may write to."""

import errno
import fcntl
import logging
import os
from pathlib import Path

NAME = ".lock"

logger = logging.getLogger(__name__)


def lock_folder(folder: Path) -> int | None:
    """Lock a folder for this process alone, until the process ends, however it does, or closes the file.

    The lock is the operating system's, on the file ``.lock``. A lock of ``flock`` would live on in the processes that
    this one starts, which may outlive it by seconds.

    Returns:
        The open file; None where the file system cannot lock, which a warning says.

    Raises:
        BlockingIOError: another process has locked it.
    """
    descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o644)
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
