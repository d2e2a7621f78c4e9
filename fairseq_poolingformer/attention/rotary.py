"""Rotary positions: queries and keys that are turned by their places (Su et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.patterns import Pooling
from fairseq_poolingformer.attention.pooling import pool_keys


@dataclass(frozen=True)
class Rotary:
    """The angles of the tokens, then of level two's pools, where there are any.

    Level two turns keys after pooling them: turned before, the quick dimensions of a pool would cancel.

    Args:
        cos, sin: (B or 1, T + P, D); dimensions d and d + D/2 turn together.
    """

    cos: Tensor
    sin: Tensor

    def of_global(self, tokens: GlobalTokens) -> Rotary:
        """The angles of the tokens in each slot, (B, G, D)."""
        rows = (x[:, None].expand(tokens.num_rows, -1, -1, -1) for x in (self.cos, self.sin))
        return Rotary(*(tokens.gather(x)[:, 0] for x in rows))


def turned(x: Tensor, rotary: Rotary | None, first: int = 0) -> Tensor:
    """Turn queries or keys, in float32 at least.

    Args:
        x: (B, H, S, D).
        rotary: the angles; None returns ``x``.
        first: where those of ``x`` begin: 0 for tokens, T for pools.

    Returns:
        The shape and dtype of ``x``.
    """
    if rotary is None:
        return x
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    cos, sin = (y[:, None, first : first + x.size(2)].to(wide.dtype) for y in (rotary.cos, rotary.sin))
    one, two = wide.chunk(2, dim=-1)
    return torch.addcmul(wide * cos, torch.cat([-two, one], dim=-1), sin).to(x.dtype)


def pool_positions(positions: Tensor, pooling: Pooling, padding_mask: Tensor | None = None) -> Tensor:
    """The position of each pool's centre: half-way between the least and the greatest of its real tokens'.

    Args:
        positions: (B or 1, T) of the tokens.
        pooling: the pools.
        padding_mask: (B, T) bool, True at padding.

    Returns:
        (B or 1, P) float32, whole and half numbers; 0 for pools without a real token.
    """
    if padding_mask is not None:
        positions = positions.expand(padding_mask.size(0), -1)
    x = positions.float()[:, None, :, None]  # a maximum is exact where a mean would be rounded
    greatest, minus_least = (pool_keys(y, pooling, kind="max", padding_mask=padding_mask)[0] for y in (x, -x))
    return ((greatest - minus_least) / 2)[:, 0, :, 0]
