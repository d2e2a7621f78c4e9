"""Global tokens: every token sees them and they see every token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_exporting

from fairseq_poolingformer.attention.compiler import for_later, lazy_property


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
        object.__setattr__(self, "mask", for_later(self.mask.clone))

    @classmethod
    def of(cls, mask: Tensor | GlobalTokens | None) -> GlobalTokens | None:
        """The global tokens of a mask; a GlobalTokens, or None, is returned as it is."""
        if not isinstance(mask, GlobalTokens | Tensor | None):
            raise ValueError(f"global_mask must be a Tensor or a GlobalTokens, got {type(mask).__name__}")
        return cls(mask) if isinstance(mask, Tensor) else mask

    @classmethod
    def of_slots(cls, mask: Tensor, slots: Tensor | None, num_first: int) -> GlobalTokens:
        """The global tokens of a mask of which :attr:`slots` and :attr:`num_first` are known."""
        tokens = cls(mask)
        if num_first:
            vars(tokens)["_counts"] = num_first, num_first
        elif slots is not None:
            vars(tokens)["_counts"] = slots.size(1), 0
            vars(tokens)["index"], vars(tokens)["unused"] = slots.clamp(min=0), slots < 0
        return tokens

    @lazy_property
    def _counts(self) -> tuple[int, int]:
        """The most global tokens in a row, and how many every row begins with: one synchronization."""
        if not self.mask.numel():
            return 0, 0
        if is_exporting():
            return int(self.mask.sum(1).max()), 0
        counts = self.mask.sum(1).amax(), self.mask.long().cumprod(1).sum(1).amin()
        most, first = torch.stack(counts).tolist()
        return most, first

    def settle(self) -> None:
        """Look at the mask now, since a compiled function that is handed this object may not."""
        if not self.num_first:
            self.slots  # noqa: B018 (computed once)

    @property
    def known(self) -> bool:
        """Whether the number of slots is known, or may be looked at."""
        return "_counts" in vars(self) or not torch.compiler.is_compiling()

    @property
    def num_slots(self) -> int:
        """G, the most global tokens in a row."""
        return self._counts[0]

    @property
    def num_first(self) -> int:
        """G where the global tokens of every row are its first G tokens, else 0, as in exported graphs."""
        if is_exporting():
            return 0
        most, first = self._counts
        return most if most == first else 0

    @lazy_property
    def places(self) -> tuple[Tensor, Tensor, Tensor]:
        """(R,) the batch row of each global token, its slot 0 … G−1, and its index among the row's tokens."""
        row, token = self.mask.nonzero(as_tuple=True)
        return row, (self.mask.cumsum(1) - 1)[row, token], token

    @property
    def num_rows(self) -> int:
        """B."""
        return self.mask.size(0)

    @lazy_property
    def unused(self) -> Tensor:
        """(B, G) bool, True at slots without a token."""
        if self.num_first:
            return torch.zeros_like(self.mask[:, : self.num_first])
        unused = torch.ones(self.num_rows, self.num_slots, dtype=torch.bool, device=self.mask.device)
        row, slot, _ = self.places
        unused[row, slot] = False
        return unused

    @lazy_property
    def index(self) -> Tensor:
        """(B, G) the token in each slot; 0 in unused slots."""
        if self.num_first:
            return torch.arange(self.num_first, device=self.mask.device).expand(self.num_rows, -1)
        index = torch.zeros(self.num_rows, self.num_slots, dtype=torch.long, device=self.mask.device)
        row, slot, token = self.places
        index[row, slot] = token
        return index

    @lazy_property
    def slots(self) -> Tensor:
        """(B, G) the token in each slot; −1 in unused slots."""
        return self.index.masked_fill(self.unused, -1)

    def hidden(self, padding: Tensor | None) -> Tensor:
        """(B, G) bool, True at slots without a token and at tokens that are padding by the (B, S) mask."""
        if padding is None:
            return self.unused
        return padding[:, : self.num_first] if self.num_first else self.unused | padding.gather(1, self.index)

    def gather(self, x: Tensor) -> Tensor:
        """The global tokens' vectors of ``x`` (B, H, S, D): (B, H, G, D), zero in unused slots; maybe a view."""
        if self.num_first:
            return x[:, :, : self.num_first]
        if torch.compiler.is_compiling() and not is_exporting():  # without a look at the mask
            index = self.index[:, None, :, None].expand(-1, x.size(1), -1, x.size(3))
            return x.gather(2, index).masked_fill(self.unused[:, None, :, None], 0.0)
        out, (row, slot, token) = x.new_zeros(self.num_rows, x.size(1), self.num_slots, x.size(3)), self.places
        out[row, :, slot] = x[row, :, token]
        return out

    def put(self, x: Tensor, values: Tensor | float) -> None:
        """Overwrite the global tokens' vectors of ``x`` (B, H, S, D) in place with ``values`` (B, H, G, D)."""
        if self.num_first:
            x[:, :, : self.num_first] = values
        else:
            row, slot, token = self.places
            x[row, :, token] = values[row, :, slot].to(x.dtype) if isinstance(values, Tensor) else values

    def add(self, x: Tensor, values: Tensor) -> None:
        """Add ``values`` (B, H, G, D) in place to the global tokens' vectors of ``x`` (B, H, S, D)."""
        if self.num_first:
            x[:, :, : self.num_first] += values.to(x.dtype)
        else:
            row, slot, token = self.places
            x[row, :, token] += values[row, :, slot].to(x.dtype)

    def replaced(self, x: Tensor, values: Tensor) -> Tensor:
        """``x`` (B, H, S, D) with ``values`` (B, H, G, D) at the global tokens, as a new tensor."""
        if torch.compiler.is_compiling() and not is_exporting() and not self.num_first:
            slot = (self.mask.cumsum(1) - 1).clamp(min=0)[:, None, :, None].expand(-1, x.size(1), -1, x.size(3))
            return torch.where(self.mask[:, None, :, None], values.gather(2, slot), x)
        if self.num_first:
            rows = (y.permute(2, 0, 1, 3) for y in (values, x[:, :, self.num_first :]))  # the backends' layout
            return torch.cat(tuple(rows)).permute(1, 2, 0, 3)
        x = x.clone()
        self.put(x, values)
        return x


class SlottedTokens(GlobalTokens):
    """Global tokens of which a graph sees tensors alone: their slots, whose number is a power of two.

    Args:
        tokens: the global tokens, which may be looked at.
    """

    num_first, known = 0, True

    def __init__(self, tokens: GlobalTokens) -> None:
        super().__init__(tokens.mask)
        # at least 2 slots: a graph would take 1 for a constant
        unused = 2 ** max(1, (tokens.num_slots - 1).bit_length()) - tokens.num_slots
        slots = for_later(F.pad, tokens.slots, (0, unused), value=-1)
        vars(self).update(slots=slots, index=slots.clamp(min=0), unused=slots < 0)

    @property
    def num_slots(self) -> int:
        return self.index.size(1)


class FirstTokens(GlobalTokens):
    """Global tokens that can only be the first ones of each row, so that slots need no look at the mask.

    Args:
        mask: (B, S) bool, True at global tokens, all of them among the first ``count``.
        count: G.
    """

    def __init__(self, mask: Tensor, count: int) -> None:
        super().__init__(mask)
        vars(self)["_counts"] = count, 0
        vars(self)["unused"] = for_later(torch.logical_not, self.mask[:, :count])

    def hidden(self, padding: Tensor | None) -> Tensor:
        return self.unused if padding is None else self.unused | padding[:, : self.num_slots]

    def gather(self, x: Tensor) -> Tensor:
        return x[:, :, : self.num_slots].masked_fill(self.unused[:, None, :, None], 0.0)

    def replaced(self, x: Tensor, values: Tensor) -> Tensor:
        first = torch.where(self.unused[:, None, :, None], x[:, :, : self.num_slots], values)
        return x.index_copy(2, torch.arange(self.num_slots, device=x.device), first)
