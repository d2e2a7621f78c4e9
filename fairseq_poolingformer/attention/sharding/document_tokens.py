"""The global tokens of a document, of which each rank has some."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from fairseq_poolingformer.attention.global_tokens import GlobalTokens

SLOTS = 2  # the dimension of tokens, pools and global tokens in (B, H, …, D)


@dataclass(frozen=True)
class DocumentTokens:
    """The global tokens of all ranks, in the document's order: G slots in every row.

    Args:
        own: those of this rank, in slots of its own.
        counts: how many slots each rank has.
        position: (B, G) the token in each slot, counted from the document's beginning; -1 in unused slots.
        hidden: (B, G) bool, True at unused slots and at padding.
        order: (B, G) which of the ranks' slots, one rank after the other, are these.
        slot: (B, sum of counts) the reverse; any for unused slots.
    """

    own: GlobalTokens
    counts: tuple[int, ...]
    position: Tensor
    hidden: Tensor
    order: Tensor
    slot: Tensor

    @classmethod
    def of(cls, own: GlobalTokens, counts: tuple[int, ...], found: Tensor) -> DocumentTokens:
        """From the position and the padding (B, sum of counts, 2) of all ranks' slots; a position is -1 if unused."""
        used = found[..., 0] >= 0
        order = (~used).byte().argsort(dim=1, stable=True)[:, : int(used.sum(1).max())]
        position, padded = found.gather(1, order[..., None].expand(-1, -1, 2)).unbind(-1)
        hidden = (position < 0) | padded.bool()
        return cls(own, counts, position, hidden, order, (used.cumsum(1) - 1).clamp(min=0))

    def ranges(self) -> list[range]:
        """The slots of each rank among those of all."""
        return [range(*ends) for ends in pairwise(accumulate(self.counts, initial=0))]

    def in_order(self, x: Tensor) -> Tensor:
        """(B, H, G, D) in the document's order, from that of the ranks (B, H, sum of counts, D)."""
        return _picked(x, self.order)

    def by_rank(self, x: Tensor) -> Tensor:
        """The reverse of :meth:`in_order`."""
        return _picked(x, self.slot)

    def among(self, tokens: range) -> Tensor:
        """(B, tokens) bool, True where one of some neighbouring tokens is global."""
        place = self.position - tokens.start
        mask = place.new_zeros(place.size(0), len(tokens) + 1, dtype=torch.bool)
        inside = (place >= 0) & (place < len(tokens)) & (self.position >= 0)
        return mask.scatter(1, place.where(inside, len(tokens)), True)[:, :-1]


def _picked(x: Tensor, slots: Tensor) -> Tensor:
    """Some slots (B, G) of (B, H, S, D): (B, H, G, D)."""
    return x.gather(SLOTS, slots[:, None, :, None].expand(-1, x.size(1), -1, x.size(3)))
