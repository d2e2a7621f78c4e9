"""Where the text of a token begins: white space before it is not part of it."""

from collections.abc import Callable

import numpy as np

_UNICODE_SIZE = 0x110000


class Blanks:
    """The blank characters that tokens begin with.

    Args:
        is_blank: of a character; asked once for each.
    """

    def __init__(self, is_blank: Callable[[str], bool]):
        self._is_blank = is_blank
        self._known = np.full(_UNICODE_SIZE, -1, np.int8)  # 0 or 1 where it has been asked

    def skip(self, text: str, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Starts moved over blank characters, at most to their ends.

        Args:
            text: what the offsets refer to; has UTF-8.
            starts, ends: (T,) bytes.

        Returns:
            (T,) int64, bytes.
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
