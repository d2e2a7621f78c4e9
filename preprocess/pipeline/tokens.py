"""The tokens of a text, and which of them a piece of the text becomes."""

import numpy as np


class Tokens:
    """A document's tokens with their offsets in the corpus's unit.

    Args:
        ids, starts, ends: (T,) as :meth:`Tokenizer.encode_with_offsets` gives them.
    """

    def __init__(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray):
        self.ids, self.starts, self.ends = ids, starts, ends
        self.full = np.flatnonzero(ends > starts)  # those that have text

    def of_span(self, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (S,) the first token of each span and (S,) the one after its last; both 0 where it has no text."""
        first = np.searchsorted(self.ends[self.full], start, side="right")
        last = np.searchsorted(self.starts[self.full], end, side="left") - 1
        found = first <= last
        return np.where(found, np.take(self.full, first, mode="clip"), 0), np.where(found, self.full[last] + 1, 0)
