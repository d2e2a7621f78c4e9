"""Finds where the text of a token begins: white space before the text is not part of the token."""

from collections.abc import Callable

import numpy as np

_UNICODE_SIZE = 0x110000


class Blanks:
    """Skips the blank characters that tokens begin with.

    Args:
        is_blank: says whether a character is blank; called once for each character.
    """

    def __init__(self, is_blank: Callable[[str], bool]):
        self._is_blank = is_blank
        self._known = np.full(_UNICODE_SIZE, -1, np.int8)  # -1: not known yet

    def skip(self, text: str, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Move starts over blank characters, at most to their ends.

        Args:
            text: the text that the offsets refer to; it has no lone surrogates.
            starts, ends: (T,) offsets in bytes of UTF-8.

        Returns:
            (T,) int64, the starts in bytes.
        """
        chars = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        blank = self._known[chars]
        if (blank < 0).any():
            for char in np.unique(chars[blank < 0]).tolist():
                self._known[char] = self._is_blank(chr(char))
            blank = self._known[chars]
        blank = blank.astype(bool)
        if not text.isascii():
            blank = np.repeat(blank, np.diff(byte_offsets(text)))
        text_bytes = np.append(np.flatnonzero(~blank), len(blank))
        return np.minimum(text_bytes[np.searchsorted(text_bytes, starts)], ends)


def byte_offsets(text: str) -> np.ndarray:
    """(n + 1,) where each of a text's n characters begins in UTF-8, in bytes, and where the last one ends."""
    chars = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    sizes = 1 + (chars >= 0x80) + (chars >= 0x800) + (chars >= 0x10000)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
