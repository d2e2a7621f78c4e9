"""Symbols that mark places in the inputs of Longformer's downstream tasks (its §6 and appendix D).

No data folder holds them: a task appends them to its dictionary, after ``<mask>``, and puts them in when it cuts
documents into segments. All tasks have the same ones, so that the checkpoint of one fits the next.
"""

from __future__ import annotations

from collections.abc import Sequence

# question, candidate of WikiHop, title and sentence of HotpotQA
MASK = "<mask>"
MARKS = ("[q]", "[/q]", "[ent]", "[/ent]", "<t>", "</t>", "[s]")


def appended(count: int) -> tuple[str, ...] | None:
    """Return the symbols that tasks have appended to a dictionary, by their number; None for another number."""
    return {0: (), 1: (MASK,), 1 + len(MARKS): (MASK, *MARKS)}.get(count)


def count_marks(symbols: Sequence[str]) -> int:
    """Count the marks at the end of a dictionary: all of them, or none."""
    return len(MARKS) if tuple(symbols[-len(MARKS) :]) == MARKS else 0
