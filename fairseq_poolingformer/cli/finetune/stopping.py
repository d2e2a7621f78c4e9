"""How signals end the command: with a checkpoint where it trains."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stopping:
    """What SIGTERM, SIGINT and SIGHUP do: within a training they ask for a checkpoint first, a second one for none."""

    def __init__(self) -> None:
        self.is_asked, self.is_training = False, False

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[Stopping]:
        """Take these signals within the block."""
        stopping = cls()
        names = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = {name: signal.signal(name, stopping.take) for name in names}
        try:
            yield stopping
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)

    def take(self, number: int, frame: Any) -> None:
        """Take a signal."""
        if self.is_asked or not self.is_training:
            self.is_asked = True
            raise KeyboardInterrupt
        self.is_asked = True
        print("\nstopping after this update, with a checkpoint (interrupt again: at once)", flush=True)

    def check(self) -> None:
        """Stop here, where a library has swallowed the interruption."""
        if self.is_asked:
            raise KeyboardInterrupt
