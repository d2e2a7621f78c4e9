"""How far a pass over the input is: a bar on a terminal, a line now and then in a log."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator

from tqdm import tqdm

logger = logging.getLogger("preprocess")

EVERY_SECONDS = 30


class _Lines(tqdm):
    """A bar whose states become lines of a log."""

    monitor_interval = 0  # no thread: processes are forked meanwhile

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if self.n:
            logger.info("%s", str(self))


@contextlib.contextmanager
def progress(name: str, total: int | None) -> Iterator[Callable[[int], object]]:
    """Give a function to call with the number of bytes that have just been done."""
    with contextlib.ExitStack() as stack:
        options = {"total": total or None, "unit": "B", "unit_scale": True, "desc": name}
        if sys.stderr.isatty():
            yield stack.enter_context(tqdm(**options)).update
            return
        nowhere = stack.enter_context(open(os.devnull, "w"))
        left = "; {percentage:.0f} %, about {remaining} left" * bool(total)
        form = "{desc}: {n_fmt}{unit} in {elapsed}, {rate_fmt}" + left
        lines = _Lines(**options, file=nowhere, mininterval=EVERY_SECONDS, miniters=1, bar_format=form)
        yield stack.enter_context(lines).update
