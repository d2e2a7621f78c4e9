"""Files that appear under their name when they are whole, so that a killed run leaves no half one there."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name beside the final one to write to; what was written gets the final name where the block ends well."""
    unfinished = path.with_name(path.name + ".unfinished")
    yield unfinished
    os.replace(unfinished, path)
