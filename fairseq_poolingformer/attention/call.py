"""One checked call of the operator, as the backends receive it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fairseq_poolingformer.attention.patterns import Pooling, Window
from fairseq_poolingformer.attention.score_terms.relative_bias import ScoreTerm


@dataclass(frozen=True)
class GlobalTokens:
    """The global tokens of a batch, gathered to the same number of slots G in every row.

    What is computed of the mask is kept: layers that are given the same GlobalTokens find it there, where a mask would
    make each of them wait for the device.

    Args:
        mask: (B, S) bool, True at global tokens.
    """

    mask: Tensor

    @classmethod
    def of(cls, mask: Tensor | GlobalTokens | None) -> GlobalTokens | None:
        """Those of a mask; what is one already, and None, are returned as they are."""
        return cls(mask) if isinstance(mask, Tensor) else mask

    @cached_property
    def places(self) -> tuple[Tensor, Tensor]:
        """(R,) batch row of each global token, and (R,) its index among the row's tokens."""
        return self.mask.nonzero(as_tuple=True)

    @property
    def row(self) -> Tensor:
        return self.places[0]

    @property
    def token(self) -> Tensor:
        return self.places[1]

    @cached_property
    def slot(self) -> Tensor:
        """(R,) the place 0 … G−1 of each global token among its row's."""
        return (self.mask.cumsum(1) - 1)[self.places]

    @cached_property
    def num_slots(self) -> int:
        """G, the most global tokens in a row."""
        return int(self.mask.sum(1).max()) if self.mask.numel() else 0

    @property
    def num_rows(self) -> int:
        """B."""
        return self.mask.size(0)

    @cached_property
    def unused(self) -> Tensor:
        """(B, G) bool, True at slots that hold no token."""
        unused = torch.ones(self.num_rows, self.num_slots, dtype=torch.bool, device=self.mask.device)
        unused[self.row, self.slot] = False
        return unused

    @cached_property
    def index(self) -> Tensor:
        """(B, G) the token in each slot; 0 in unused ones."""
        index = torch.zeros(self.num_rows, self.num_slots, dtype=torch.long, device=self.mask.device)
        index[self.row, self.slot] = self.token
        return index

    def hidden(self, padding: Tensor | None) -> Tensor:
        """(B, G) bool, True at slots that hold no token or one that is padding by the (B, S) mask."""
        return self.unused if padding is None else self.unused | padding.gather(1, self.index)

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
    global_tokens: GlobalTokens | None
    key_padding_mask: Tensor | None
    score_terms: tuple[ScoreTerm, ...]
    query_offset: int
    dropout_p: float
    scale: float

    @property
    def key_offset(self) -> int:
        """The token at which key 0 starts."""
        return 0 if self.pooling is None else self.pooling.first_start

    @property
    def key_stride(self) -> int:
        """Tokens between the starts of neighbouring keys."""
        return 1 if self.pooling is None else self.pooling.key_stride

    @property
    def global_mask(self) -> Tensor | None:
        """(B, S) bool, True at global tokens."""
        return None if self.global_tokens is None else self.global_tokens.mask

    def global_keys(self) -> GlobalTokens | None:
        """The global tokens among the keys, some of them maybe padding; None without any."""
        tokens = self.global_tokens
        return tokens if tokens is not None and tokens.num_slots else None

    def global_queries(self) -> GlobalTokens | None:
        """The global tokens among the queries, as indices into the queries, or None without any."""
        num_queries, num_keys = self.query.size(2), self.key.size(2)
        start = self.query_offset
        if self.global_tokens is None or (start == 0 and num_queries == num_keys):
            return self.global_keys()
        mask = self.global_mask.new_zeros(self.query.size(0), num_queries)
        first, last = max(0, start), min(num_keys, start + num_queries)
        if first < last:
            mask[:, first - start : last - start] = self.global_mask[:, first:last]
        tokens = GlobalTokens(mask)
        return tokens if tokens.num_slots else None
