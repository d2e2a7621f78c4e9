"""Padding on either side: move each row's real tokens to the front, and move the results back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairseq_poolingformer.huggingface.attention import planes


@dataclass(frozen=True)
class Rows:
    """The rows of a batch, their real tokens first.

    Attributes:
        order: (B, T) the column that each column is taken from; None where the tokens come first already.
        padding_mask: (B, T) bool, True at padding after the move; None without any.
    """

    order: Tensor | None
    padding_mask: Tensor | None

    @classmethod
    def of(cls, attention_mask: Tensor | None) -> Rows:
        """Make the rows of a mask, (B, T), 1 at real tokens; None for a batch without padding.

        Raises:
            ValueError: the mask has another number of dimensions.
        """
        if attention_mask is None:
            return cls(None, None)
        if attention_mask.dim() != 2:
            raise ValueError(f"attention_mask must be (batch, tokens), got {tuple(attention_mask.shape)}")
        real = attention_mask.bool()
        if real.all():
            return cls(None, None)
        if (real[:, :-1] | ~real[:, 1:]).all():
            return cls(None, ~real)
        order = (~real).byte().argsort(dim=1, stable=True)
        return cls(order, ~real.gather(1, order))

    def moved(self, x: Tensor | None) -> Tensor | None:
        """Return (B, T) or (B, T, C) with the real tokens first."""
        return x if x is None or self.order is None else _take(x, self.order)

    def back(self, x: Tensor | None) -> Tensor | None:
        """Undo :meth:`moved`."""
        return x if x is None or self.order is None else _take(x, self.order.argsort(dim=1))

    def masks(self, like: Tensor, global_attention_mask: Tensor | None, global_tokens: int) -> Tensor:
        """Return the masks of :func:`~.attention.planes`.

        Args:
            like: (B, T, …), for shape and device.
            global_attention_mask: (B, T), 1 at global tokens, columns as given by the user; None for the first ones.
            global_tokens: the number of these first ones.
        """
        if global_attention_mask is None:
            first = torch.arange(like.size(1), device=like.device) < global_tokens
            global_mask = first.expand(like.size(0), -1)
        else:
            global_mask = self.moved(global_attention_mask.bool())
        if self.padding_mask is not None:
            global_mask = global_mask & ~self.padding_mask
        return planes(self.padding_mask, global_mask)


def _take(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(1, order if x.dim() == 2 else order.unsqueeze(-1).expand_as(x))
