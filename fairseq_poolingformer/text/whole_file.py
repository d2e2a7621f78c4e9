"""Files that get their names when they are complete, so that a killed run leaves no half file under a good name."""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

SUFFIX = ".unfinished"


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
