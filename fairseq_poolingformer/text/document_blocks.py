"""Blocks of documents that language models read: one document a block, or documents packed one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FRAME = 2  # <s> and </s> around every block


@dataclass(frozen=True)
class DocumentBlocks:
    """The places of blocks in the tokens of all documents, one document after the other."""

    first_token: np.ndarray  # (N,) int64
    end_token: np.ndarray  # (N,) int64, half-open; a block's ``<s>`` and last ``</s>`` do not count
    num_cut: int  # the number of documents in several blocks; 0 where blocks are packed
    num_empty: int  # the number of documents without a token; they have no block
    num_evened: int  # the number of last blocks that got tokens of the block before

    def __len__(self) -> int:
        return len(self.first_token)

    @property
    def sizes(self) -> np.ndarray:
        """(N,) the number of tokens of each block, with ``<s>`` and ``</s>``."""
        return self.end_token - self.first_token + FRAME


def documents_of_lines(bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of documents that empty lines divide, and the last tokens of each that are not its text's.

    A line ends with ``</s>``, an empty one is it alone. Those between a document's lines are tokens of its text.
    """
    is_empty = np.diff(bounds) <= 1
    first = np.flatnonzero(~is_empty & np.append(True, is_empty)[:-1])  # lines
    last = np.flatnonzero(~is_empty & np.append(is_empty, True)[1:])
    empty_behind = np.append(first, len(is_empty))[1:] - last - 1
    return np.append(bounds[first], bounds[-1]), 1 + empty_behind


def cut_into_blocks(
    bounds: np.ndarray,
    *,
    max_tokens: int,
    min_tokens: int | None = None,
    pack: bool = False,
    num_last: int | np.ndarray = 1,
) -> DocumentBlocks:
    """Cut documents into full blocks ``<s> … </s>``; the last two share their tokens where one would be too short.

    ``num_last`` tokens at the end of a document are not its text's: its ``</s>``, and those of empty lines behind it.
    """
    if max_tokens <= FRAME:
        raise ValueError(f"max_tokens must be at least {FRAME + 1}, for <s>, a token and </s>; got {max_tokens}")
    if min_tokens is None:
        min_tokens = max_tokens // 8
    if not 0 <= min_tokens <= max_tokens // 2:
        raise ValueError(f"min_tokens must be between 0 and half of max_tokens {max_tokens}, got {min_tokens}")
    room = max_tokens - FRAME
    num_last = np.broadcast_to(num_last, len(bounds) - 1)
    lengths = np.diff(bounds) - num_last
    num_empty = int((lengths <= 0).sum())
    if pack and len(lengths):
        bounds = bounds[[0, -1]]
        lengths = np.diff(bounds) - num_last[-1]
    starts = bounds[:-1]
    counts = -(-lengths // room)
    tails = lengths - (counts - 1) * room
    is_evened = (counts > 1) & (tails + FRAME < min_tokens)

    document = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    is_last = number == counts[document] - 1
    first = number * room
    moved = is_last & is_evened[document]
    first[moved] -= (room - tails[document[moved]]) // 2
    end = np.append(first, 0)[1:]
    end[is_last] = lengths[document[is_last]]
    first += starts[document]
    end += starts[document]
    num_cut = 0 if pack else int((counts > 1).sum())
    return DocumentBlocks(first, end, num_cut, num_empty, int(is_evened.sum()))
