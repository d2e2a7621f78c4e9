"""Sliding-window attention in plain PyTorch and by FlexAttention, beside which this project's is timed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from fairseq_poolingformer.attention import Pooling, Window, pool_keys


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


def flex_window(query: Tensor, key: Tensor, value: Tensor, window: Window, global_token: bool = False) -> Tensor:
    """Sliding-window attention by FlexAttention; with ``global_token`` the first token is global."""
    mask = _window_mask(query.size(2), window.left, global_token, query.device)
    return _compiled()(query, key, value, block_mask=mask)


def flex_pooled(query: Tensor, key: Tensor, value: Tensor, window: Window, pooling: Pooling) -> Tensor:
    """Level two with mean pooling, pooling included, by FlexAttention."""
    (keys, _), (values, _) = pool_keys(key, pooling), pool_keys(value, pooling)
    mask = _pooled_mask(query.size(2), window.left, pooling, query.device)
    return _compiled()(query, keys, values, block_mask=mask)


@cache
def _compiled() -> Callable[..., Tensor]:
    return torch.compile(flex_attention)


@cache
def _window_mask(length: int, window: int, global_token: bool, device: torch.device) -> BlockMask:
    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        near = (i - j).abs() <= window
        return near | (i == 0) | (j == 0) if global_token else near

    return create_block_mask(seen, None, None, length, length, device=device)


@cache
def _pooled_mask(length: int, window: int, pooling: Pooling, device: torch.device) -> BlockMask:
    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        twice = 2 * (i - pooling.stride * j) - (pooling.kernel_size - 1)  # distance to the pool's centre
        return twice.abs() <= 2 * window

    return create_block_mask(seen, None, None, length, pooling.num_pools(length), device=device)
