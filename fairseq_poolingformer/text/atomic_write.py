"""Atomic writes: a file gets its name when it is complete, so a killed run leaves no half file under a good name.

A lock on a folder lets one process at a time write to it.
"""

import bz2
import contextlib
import errno
import fcntl
import functools
import gzip
import logging
import lzma
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

SUFFIX = ".unfinished"
LOCK = ".lock"
ABANDONED = 24 * 3600  # seconds
_LONGEST_NAME = 255  # bytes, of most file systems
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_OF_TORCH = ("PytorchStreamWriter", "unexpected pos")  # its errors of a disk

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def atomic_write(path: Path, flush: bool = False) -> Iterator[Path]:
    """Yield a name beside the final one to write to; rename that file when the block ends without an error."""
    unfinished = unfinished_name(path)
    remove_abandoned(path.parent)
    try:
        with disk_errors(path, unfinished):
            yield unfinished
            if flush:
                _flush(unfinished)
            os.replace(unfinished, path)
            if flush:
                try:
                    _flush(path.parent)
                except OSError as error:  # some network file systems flush files only
                    if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                        raise
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
    """A name to write a file under that no other process uses; it is no longer than names may be."""
    # random, since neither hosts nor processes have numbers of their own: containers share both
    end = f".{secrets.token_hex(8)}{SUFFIX}"
    return path.with_name(os.fsdecode(os.fsencode(path.name)[: _LONGEST_NAME - len(end)]) + end)


@functools.lru_cache(maxsize=1024)
def remove_abandoned(folder: Path) -> None:
    """Remove unfinished files of a folder that nobody has written to for a day, once a process."""
    left = [path for path in folder.glob(f"*{SUFFIX}") if path.is_file() or path.is_symlink()]
    if not left:
        return
    with contextlib.suppress(OSError):  # another process may be quicker
        with tempfile.TemporaryFile(dir=folder) as probe:
            now = os.fstat(probe.fileno()).st_mtime  # by the clock of the file system, which may be another machine's
        for path in left:
            if now - path.lstat().st_mtime > ABANDONED:
                path.unlink()


def remove_unlocked(folder: Path) -> bool:
    """Remove a folder in the making whose process has ended; whether that was so, as far as its lock says."""
    if not (folder / LOCK).is_file():
        return False
    try:
        descriptor = lock_folder(folder)
    except BlockingIOError:
        return False
    if descriptor is None:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)
    return True


@contextlib.contextmanager
def text_file(path: Path) -> Iterator[TextIO]:
    """Open a text file to write, compressed as its name says; it gets its name when the block ends without an error."""
    kind: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(path.suffix, open)
    with atomic_write(path) as unfinished, kind(unfinished, "wt", encoding="utf-8", newline="\n") as file:
        yield file


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write the lines of a :func:`text_file`."""
    with text_file(path) as file:
        file.writelines(line + "\n" for line in lines)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
