"""How far a pass over the input is: a bar on a terminal, a line now and then in a log."""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator

from tqdm import tqdm

logger = logging.getLogger("preprocess")

EVERY_SECONDS = 30
STEPS = 10  # a line at each tenth, too
LEAST_SECONDS = 3  # between two lines


@contextlib.contextmanager
def progress(name: str, total: int | None) -> Iterator[Callable[[int], object]]:
    """Give a function to call with the number of bytes that have just been done."""
    if sys.stderr.isatty():
        with tqdm(total=total, unit="B", unit_scale=True, desc=name) as bar:
            yield bar.update
    else:
        yield _Log(name, total).update


class _Log:
    """Writes the lines."""

    def __init__(self, name: str, total: int | None) -> None:
        self._name, self._total = name, total
        self._done, self._step = 0, 0
        self._start = self._last = time.monotonic()

    def update(self, size: int) -> None:
        """Count bytes, and write a line where it is time."""
        self._done += size
        now = time.monotonic()
        step = STEPS * self._done // self._total if self._total else 0
        passed = now - self._last
        if passed >= EVERY_SECONDS or (step > self._step and passed >= LEAST_SECONDS):
            self._last, self._step = now, step
            logger.info("%s", self._line(now - self._start))

    def _line(self, seconds: float) -> str:
        speed = self._done / max(seconds, 1e-9)
        line = f"{self._name}: {self._done / 1e6:,.0f} MB in {seconds:,.0f} s, {speed / 1e6:.1f} MB/s"
        if not self._total:
            return line
        left = max(self._total - self._done, 0) / max(speed, 1e-9)
        return f"{line}; {100 * self._done / self._total:.0f} %, about {left:,.0f} s left"
