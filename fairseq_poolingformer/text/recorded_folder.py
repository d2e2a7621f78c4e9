"""The data folder that a checkpoint records, which may be a stranger's: what of it may be read, and how much."""

from __future__ import annotations

import contextlib
from pathlib import Path
from stat import S_ISREG
from typing import Any

LARGEST_FILE = 2**26  # bytes of a dictionary, a file of a tokenizer, or a description of data
LONGEST_PATH = 4096  # characters


def recorded_folder(recorded: Any) -> Path | None:
    """Return the data folder that a checkpoint records, if it is one.

    It is one if it has a dictionary or a ``corpus.json``, and what is read of it with a model are files of a bounded
    size, no devices and no pipes. So a stranger's file can at most make a command read a data folder of the user's.
    """
    first = recorded[0] if isinstance(recorded, list) and recorded else recorded
    if not isinstance(first, str) or "\0" in first or not 0 < len(first) <= LONGEST_PATH or not first.split(":")[0]:
        return None
    folder = Path(first.split(":")[0])
    sizes = sizes_of_what_is_read(folder)
    return folder if sizes and max(sizes) <= LARGEST_FILE else None


def sizes_of_what_is_read(folder: Path) -> list[int]:
    """Return the bytes of a data folder's files that are read with a model; anything but a file counts as too large."""
    sizes = []
    with contextlib.suppress(OSError):  # not there, not a folder, not readable
        for path in (*folder.glob("dict*.txt"), folder / "corpus.json", folder / "tokenizer/config.json"):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                sizes.append(status.st_size if S_ISREG(status.st_mode) else LARGEST_FILE + 1)
    return sizes
