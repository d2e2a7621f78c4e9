"""The systems of systems.txt, and how many keys a query of theirs sees."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("systems.txt")


@dataclass(frozen=True)
class System:
    """A line of systems.txt.

    Attributes:
        name: the system's.
        start: absolute or relative.
        w1, w2: tokens on each side, or ``all``; ``-`` where there is no level two.
        level2: the layers with level two, or ``none``.
        pool: the pooling.
        flags: more flags of fairseq-train; ``-`` for none.
    """

    name: str
    start: str
    w1: str
    w2: str
    level2: str
    pool: str
    flags: str

    @property
    def kind(self) -> str:
        """The kind of system; crossover.py has a colour for each."""
        if self.level2 != "none":
            return "one softmax" if "--pool-merge=softmax" in self.flags else "two levels"
        if "--dilation=" in self.flags:
            return "dilated heads"
        return "full attention" if self.w1 == "all" else "one window"

    def keys(self, context: int) -> int:
        """The keys that a query in the middle of ``context`` tokens sees in an upper layer, both levels together."""
        keys = _both_sides(self.w1, context)
        if self.level2 != "none":
            stride = re.search(r"--pool-stride=(\d+)", self.flags)
            keys += _both_sides(self.w2, context) // (int(stride.group(1)) if stride else 4)
        return keys


def _both_sides(window: str, context: int) -> int:
    return context if window == "all" else min(2 * int(window), context)


def read_systems() -> dict[str, System]:
    """The systems by name, in the order of the file."""
    lines = [line.split(maxsplit=6) for line in TABLE.read_text(encoding="utf-8").splitlines()]
    rows = [words for words in lines if words and words[0] != "name" and not words[0].startswith("#")]
    return {words[0]: System(*words) for words in rows}
