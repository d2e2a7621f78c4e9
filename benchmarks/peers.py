"""Sliding-window attention without kernels, beside which this project's is timed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def unfold_attention(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """Sliding-window attention as it is written without kernels: unfolded copies of the keys, then SDPA."""
    batch, heads, length, head_dim = query.shape
    blocks = length // window

    def unfolded(x: Tensor) -> Tensor:
        padded = F.pad(x, (0, 0, window, window))
        return padded.unfold(2, 3 * window, window).transpose(-1, -2)  # (B, H, blocks, 3·window, D)

    distance = torch.arange(3 * window, device=query.device) - window
    distance = distance[None, :] - torch.arange(window, device=query.device)[:, None]
    position = torch.arange(blocks, device=query.device)[:, None] * window - window
    position = position + torch.arange(3 * window, device=query.device)
    inside = (position >= 0) & (position < length)
    mask = (distance.abs() <= window)[None] & inside[:, None]
    out = F.scaled_dot_product_attention(
        query.view(batch, heads, blocks, window, head_dim), unfolded(key), unfolded(value), attn_mask=mask
    )
    return out.reshape(query.shape)
