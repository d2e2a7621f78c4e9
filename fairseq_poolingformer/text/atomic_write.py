"""Atomic writes: a file gets its name when it is complete, so a killed run leaves no half file under a good name.

A lock on a folder lets one process at a time write to it.
"""

import contextlib
import errno
import fcntl
import functools
import logging
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

SUFFIX = ".unfinished"
LOCK = ".lock"
_ENDED = ""
_LONGEST_NAME = 255  # bytes, of most file systems
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_OF_TORCH = ("PytorchStreamWriter", "unexpected pos")  # its errors of a disk

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def atomic_write(path: Path, flush: bool = False) -> Iterator[Path]:
    """Yield a name beside the final one to write to; rename that file when the block ends without an error."""
    # the name is this process's own; what killed processes of this machine left of the same file is removed
    unfinished = unfinished_name(path)
    remove_left(path.parent)
    unfinished.unlink(missing_ok=True)  # of a process of the same number; it may be a link to a file that is in use
    try:
        with disk_errors(path, unfinished):
            yield unfinished
            if flush:
                _flush(unfinished)
            os.replace(unfinished, path)
            if flush:
                _flush_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def disk_errors(path: Path, unfinished: Path) -> Iterator[None]:
    """Rename disk errors to the file or folder that was to be made, not the unfinished one."""
    try:
        yield
    except OSError as error:
        named = str(error.filename or "")
        if error.errno in _DISK or named.startswith(str(unfinished)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    except RuntimeError as error:
        if not any(words in str(error) for words in _OF_TORCH):
            raise
        raise OSError(errno.EIO, f"could not be written ({str(error).splitlines()[0][:200]})", str(path)) from error


def unfinished_name(path: Path) -> Path:
    """The name that this process writes a file under; it is no longer than names may be."""
    own = f".{_host()}-{os.getpid()}{SUFFIX}"
    return path.with_name(os.fsdecode(os.fsencode(path.name)[: _LONGEST_NAME - len(own)]) + own)


def _host() -> str:
    return re.sub(r"[^\w-]", "_", socket.gethostname(), flags=re.ASCII)[:32]


@functools.lru_cache(maxsize=1024)
def remove_left(folder: Path) -> None:
    """Remove what processes of this machine that have ended were writing in a folder, once a process."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name.endswith(SUFFIX) and writer_of(path) == _ENDED:
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def writer_of(unfinished: Path) -> str:
    """Who writes an unfinished file or folder: its machine and process, or "" for one that has ended."""
    match = re.fullmatch(rf".*\.([\w-]+)-(\d+){re.escape(SUFFIX)}", unfinished.name, re.DOTALL)
    if match and match[1] == _host() and not _is_running(int(match[2])):
        return _ENDED
    return f"process {match[2]} of {match[1]}" if match else "another process"


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file beside its final name and rename it when it is complete."""
    with atomic_write(path) as unfinished, open(unfinished, "w", encoding="utf-8", newline="\n") as file:
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
    """Lock a folder, by its file ``.lock``, until the process ends or closes the file."""
    # a lock of flock would live on in the processes that this one starts, which may outlive it
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
