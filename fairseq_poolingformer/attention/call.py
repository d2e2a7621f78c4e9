"""One checked call of the operator, as the backends receive it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .biases import ScoreTerm
from .patterns import Pooling, Window


@dataclass(frozen=True)
class GlobalTokens:
    """The global tokens of a batch, gathered to the same number of slots G in every row.

    Args:
        row: (R,) batch row of each global token.
        token: (R,) its index among the tokens it was looked up in.
        slot: (R,) its place 0 … G−1 among the row's global tokens.
        num_slots: G.
        num_rows: B.
    """

    row: Tensor
    token: Tensor
    slot: Tensor
    num_slots: int
    num_rows: int

    @classmethod
    def of(cls, mask: Tensor) -> GlobalTokens:
        """The True entries of ``mask`` (B, S)."""
        row, token = mask.nonzero(as_tuple=True)
        slot = (mask.cumsum(1) - 1)[row, token]
        num_slots = int(mask.sum(1).max()) if mask.numel() else 0
        return cls(row, token, slot, num_slots, mask.size(0))

    @cached_property
    def unused(self) -> Tensor:
        """(B, G) bool, True at slots that hold no token."""
        unused = torch.ones(self.num_rows, self.num_slots, dtype=torch.bool, device=self.row.device)
        unused[self.row, self.slot] = False
        return unused

    @cached_property
    def index(self) -> Tensor:
        """(B, G) the token in each slot; 0 in unused ones."""
        index = torch.zeros(self.num_rows, self.num_slots, dtype=torch.long, device=self.row.device)
        index[self.row, self.slot] = self.token
        return index

    def gather(self, x: Tensor) -> Tensor:
        """The global tokens' vectors of ``x`` (B, H, S, D): (B, H, G, D), zero in unused slots."""
        out = x.new_zeros(self.num_rows, x.size(1), self.num_slots, x.size(3))
        out[self.row, :, self.slot] = x[self.row, :, self.token]
        return out

    def put(self, x: Tensor, values: Tensor) -> None:
        """Overwrite the global tokens' vectors of ``x`` (B, H, S, D) in place by ``values`` (B, H, G, D)."""
        x[self.row, :, self.token] = values[self.row, :, self.slot].to(x.dtype)

    def add(self, x: Tensor, values: Tensor) -> None:
        """Add ``values`` (B, H, G, D) in place to the global tokens' vectors of ``x`` (B, H, S, D)."""
        x[self.row, :, self.token] += values[self.row, :, self.slot].to(x.dtype)


@dataclass(frozen=True)
class Call:
    """Arguments of :func:`~fairseq_poolingformer.attention.band_attention`, checked and with defaults filled in."""

    query: Tensor
    key: Tensor
    value: Tensor
    window: Window
    pooling: Pooling | None
    global_mask: Tensor | None
    key_padding_mask: Tensor | None
    score_terms: tuple[ScoreTerm, ...]
    query_offset: int
    dropout_p: float
    scale: float

    def global_keys(self) -> GlobalTokens | None:
        """The global tokens among the keys that are not padding, or None without any."""
        if self.global_mask is None:
            return None
        mask = self.global_mask
        if self.key_padding_mask is not None:
            mask = mask & ~self.key_padding_mask
        tokens = GlobalTokens.of(mask)
        return tokens if tokens.num_slots else None

    def global_queries(self) -> GlobalTokens | None:
        """The global tokens among the queries, as indices into the queries, or None without any."""
        if self.global_mask is None:
            return None
        num_queries, num_keys = self.query.size(2), self.key.size(2)
        start = self.query_offset
        mask = self.global_mask.new_zeros(self.query.size(0), num_queries)
        first, last = max(0, start), min(num_keys, start + num_queries)
        if first < last:
            mask[:, first - start : last - start] = self.global_mask[:, first:last]
        tokens = GlobalTokens.of(mask)
        return tokens if tokens.num_slots else None
