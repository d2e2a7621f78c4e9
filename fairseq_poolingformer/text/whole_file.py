"""Files that get their names when they are complete, so that a killed run leaves no half file under a good name."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a name beside the final one to write to; rename that file when the block ends without an error."""
    unfinished = path.with_name(path.name + ".unfinished")
    yield unfinished
    os.replace(unfinished, path)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file beside its final name and rename it when it is complete."""
    with whole_file(path) as unfinished, open(unfinished, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)
