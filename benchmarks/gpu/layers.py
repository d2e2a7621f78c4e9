"""The layers that the scripts of this folder count and time, and an ordinary one beside them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_poolingformer.attention import Masks, Pooling, TwoLevelAttention, Window

TWO_LEVELS: dict[str, Any] = {"window": Window(128), "pooled_window": Window(512), "pooling": Pooling(5, 4)}
ONE_SOFTMAX = TWO_LEVELS | {"pooling": Pooling(4, 4), "pool_merge": "softmax"}
ORDINARY = "ordinary (SDPA)"
LAYERS: dict[str, dict[str, Any]] = {
    "window": {"window": Window(256)},
    "LED, own global projections": {"window": Window(256), "separate_global_projections": True},
    "two levels, ldconv": TWO_LEVELS,
    "two levels, mean": TWO_LEVELS | {"pool_type": "mean"},
    "Mix, shared projections, ldconv": TWO_LEVELS | {"mix": True, "share_weights": True},
    "Mix, shared projections, mean": TWO_LEVELS | {"mix": True, "share_weights": True, "pool_type": "mean"},
    "one softmax, ldconv": ONE_SOFTMAX,
    "one softmax, mean": ONE_SOFTMAX | {"pool_type": "mean"},
}


class Ordinary(nn.Module):
    """Four projections and :func:`torch.nn.functional.scaled_dot_product_attention`."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x: Tensor, masks: Masks) -> Tensor:
        query, key, value = (
            p(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        mask = None if masks.padding is None else ~masks.padding[:, None, None]
        return self.out_proj(
            F.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2).flatten(2)
        )


def build(name: str, dim: int, heads: int) -> nn.Module:
    return Ordinary(dim, heads) if name == ORDINARY else TwoLevelAttention(dim, heads, **LAYERS[name])


def masks_of(length: int, *, with_global: bool, with_padding: bool, device: str = "cpu") -> Masks:
    """The masks of one document: its first token global, its last seven padding."""
    place = torch.arange(length, device=device)[None]
    return Masks(place < 1 if with_global else None, place >= length - 7 if with_padding else None)
