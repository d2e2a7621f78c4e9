"""Global tokens: every token sees them and they see every token."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class GlobalTokens:
    """The global tokens of a batch, gathered to the same number of slots G in every row.

    Everything derived from the mask is cached: layers that share one GlobalTokens reuse it, while a plain mask makes
    every layer synchronize with the device. The mask is copied, so that a later change of the caller's has no effect.

    Args:
        mask: (B, S) bool, True at global tokens.
    """

    mask: Tensor

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask", self.mask.clone())

    @classmethod
    def of(cls, mask: Tensor | GlobalTokens | None) -> GlobalTokens | None:
        """The global tokens of a mask; a GlobalTokens, or None, is returned as it is."""
        if not isinstance(mask, GlobalTokens | Tensor | None):
            raise ValueError(f"global_mask must be a Tensor or a GlobalTokens, got {type(mask).__name__}")
        return cls(mask) if isinstance(mask, Tensor) else mask

    @cached_property
    def places(self) -> tuple[Tensor, ...]:
        """(R,) the batch row of each global token, and (R,) its index among the row's tokens."""
        return self.mask.nonzero(as_tuple=True)

    @property
    def row(self) -> Tensor:
        return self.places[0]

    @property
    def token(self) -> Tensor:
        return self.places[1]

    @cached_property
    def slot(self) -> Tensor:
        """(R,) the slot 0 … G−1 of each global token: its number among the global tokens of its row."""
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
        """(B, G) bool, True at slots without a token."""
        unused = torch.ones(self.num_rows, self.num_slots, dtype=torch.bool, device=self.mask.device)
        unused[self.row, self.slot] = False
        return unused

    @cached_property
    def index(self) -> Tensor:
        """(B, G) the token in each slot; 0 in unused slots."""
        index = torch.zeros(self.num_rows, self.num_slots, dtype=torch.long, device=self.mask.device)
        index[self.row, self.slot] = self.token
        return index

    def hidden(self, padding: Tensor | None) -> Tensor:
        """(B, G) bool, True at slots without a token and at tokens that are padding by the (B, S) mask."""
        return self.unused if padding is None else self.unused | padding.gather(1, self.index)

    def gather(self, x: Tensor) -> Tensor:
        """The global tokens' vectors of ``x`` (B, H, S, D): (B, H, G, D), zero in unused slots."""
        out = x.new_zeros(self.num_rows, x.size(1), self.num_slots, x.size(3))
        out[self.row, :, self.slot] = x[self.row, :, self.token]
        return out

    def put(self, x: Tensor, values: Tensor) -> None:
        """Overwrite the global tokens' vectors of ``x`` (B, H, S, D) in place with ``values`` (B, H, G, D)."""
        x[self.row, :, self.token] = values[self.row, :, self.slot].to(x.dtype)

    def add(self, x: Tensor, values: Tensor) -> None:
        """Add ``values`` (B, H, G, D) in place to the global tokens' vectors of ``x`` (B, H, S, D)."""
        x[self.row, :, self.token] += values[self.row, :, self.slot].to(x.dtype)

    def replaced(self, x: Tensor, values: Tensor) -> Tensor:
        """``x`` (B, H, S, D) with ``values`` (B, H, G, D) at the global tokens, as a new tensor."""
        x = x.clone()
        self.put(x, values)
        return x


class FirstTokens(GlobalTokens):
    """Global tokens that can only be the first ones of each row, so that slots need no look at the mask.

    Args:
        mask: (B, S) bool, True at global tokens, all of them among the first ``count``.
        count: G.
    """

    def __init__(self, mask: Tensor, count: int) -> None:
        super().__init__(mask)
        object.__setattr__(self, "num_slots", count)
        object.__setattr__(self, "unused", ~mask[:, :count])

    def hidden(self, padding: Tensor | None) -> Tensor:
        return self.unused if padding is None else self.unused | padding[:, : self.num_slots]

    def gather(self, x: Tensor) -> Tensor:
        return x[:, :, : self.num_slots].masked_fill(self.unused[:, None, :, None], 0.0)

    def replaced(self, x: Tensor, values: Tensor) -> Tensor:
        first = torch.where(self.unused[:, None, :, None], x[:, :, : self.num_slots], values)
        return x.index_copy(2, torch.arange(self.num_slots, device=x.device), first)
