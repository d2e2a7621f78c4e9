"""Documents cut into blocks of at most so many tokens: every token in one block, none twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FRAME = 2  # <s> and </s> around every block


@dataclass(frozen=True)
class Blocks:
    """Where blocks stand in the documents' tokens, laid one document after the other.

    Attributes:
        first_token: (N,) int64.
        end_token: (N,) int64, half-open; neither ``<s>`` nor the last ``</s>`` of a block is counted.
        num_cut: documents that are in several blocks; 0 where blocks are packed.
        num_empty: documents without a token, which have no block.
        num_evened: short tails that got tokens of the block before.
    """

    first_token: np.ndarray
    end_token: np.ndarray
    num_cut: int
    num_empty: int
    num_evened: int

    def __len__(self) -> int:
        return len(self.first_token)

    @property
    def sizes(self) -> np.ndarray:
        """(N,) tokens of the blocks, ``<s>`` and ``</s>`` included."""
        return self.end_token - self.first_token + FRAME


def cut_into_blocks(bounds: np.ndarray, *, max_tokens: int, min_tokens: int, pack: bool = False) -> Blocks:
    """Cut documents into blocks ``<s> … </s>``, full ones first.

    A document's last block is what is left over. Where that would be shorter than ``min_tokens``, the last two blocks
    share their tokens evenly instead: nothing is dropped, and no block is a few words torn from their context. A
    document that fits a block is one, however short.

    Args:
        bounds: (D + 1,) int64, ascending; document d has the tokens ``bounds[d]`` to ``bounds[d + 1]``, the last of
            which is its ``</s>``.
        max_tokens: the most tokens of a block, ``<s>`` and ``</s>`` included.
        min_tokens: the fewest tokens of a document's last block, counted likewise, where it has several.
        pack: cut all documents as if they were one, the ``</s>`` between them being part of it.

    Raises:
        ValueError: a number is out of range.
    """
    if max_tokens <= FRAME:
        raise ValueError(f"max_tokens must leave room for <s>, a token and </s>, got {max_tokens}")
    if not 0 <= min_tokens <= max_tokens // 2:
        raise ValueError(f"min_tokens must be between 0 and half of max_tokens {max_tokens}, got {min_tokens}")
    room = max_tokens - FRAME
    num_empty = int((np.diff(bounds) <= 1).sum())
    if pack:
        bounds = bounds[[0, -1]] if len(bounds) > 1 else bounds
    starts, lengths = bounds[:-1], np.diff(bounds) - 1
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
    return Blocks(first, end, num_cut, num_empty, int(is_evened.sum()))
