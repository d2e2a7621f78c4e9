"""The parts of a model that the settings of the two levels build, for fairseq's models and for transformers'."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_poolingformer.attention import Pooling, RelativeProjections, Window
from fairseq_poolingformer.attention.score_terms.disentangled import CoarsePositions
from fairseq_poolingformer.choices import UNLIMITED
from fairseq_poolingformer.settings import DEFAULTS, TwoLevels


def attention_arguments(settings: TwoLevels, layer: int, num_layers: int, num_heads: int) -> dict[str, Any]:
    """Arguments of :class:`~fairseq_poolingformer.attention.TwoLevelAttention` that choose the levels of one layer."""
    settings.check(num_layers)
    windows, pooled_windows = settings.windows(num_layers), settings.windows(num_layers, "pooled_window_size")
    level_two = {}
    if layer in settings.layers_with_level_two():
        level_two = {
            "pooled_window": Window(pooled_windows[layer]),
            "pooling": Pooling(settings.pool_kernel_size, settings.pool_stride, settings.pool_alignment),
            "pool_type": settings.pool_type,
            "ldconv_heads": settings.ldconv_heads,
            "mix": settings.pool_mix,
            "share_weights": settings.pool_share_weights,
            "pool_merge": settings.pool_merge,
        }
    return {
        "window": Window(windows[layer], dilation=settings.dilations(layer, num_heads)),
        "separate_global_projections": settings.separate_global_projections,
        "backend": settings.attention_backend,
        **level_two,
    }


def relative_projections(
    settings: TwoLevels, layer: int, num_layers: int, embed_dim: int, num_heads: int, dropout: float, max_positions: int
) -> RelativeProjections | None:
    """One layer's projections of the relative positions; None without ``relative_attention``."""
    if settings.relative_attention == "none":
        return None
    window = settings.windows(num_layers)[layer]
    dilations = settings.dilations(layer, num_heads)
    dilation = dilations if isinstance(dilations, int) else max(dilations)
    settings.check_relative(window, layer, dilation)
    return RelativeProjections(
        embed_dim,
        num_heads,
        products=tuple(settings.relative_attention.split(",")),
        reach=None if window == UNLIMITED else window * dilation,
        global_bucket=global_bucket(settings, max_positions),
        dropout=dropout,
    )


def relative_tables(
    settings: TwoLevels, embed_dim: int, max_positions: int
) -> tuple[nn.Embedding | None, CoarsePositions | None]:
    """The tables P and P_g that all layers share; None for those that the model does not have."""
    fine = coarse = None
    if settings.relative_attention != "none":
        fine = nn.Embedding(2 * settings.max_relative_positions, embed_dim)
    bucket = global_bucket(settings, max_positions)
    if bucket is not None:
        coarse = CoarsePositions(2 * settings.global_relative_positions, embed_dim, bucket)
    return fine, coarse


def global_bucket(settings: TwoLevels, max_positions: int) -> int | None:
    """Tokens that share a coarse relative position: N/k_g, rounded up (T 2.25); None without such positions."""
    if settings.relative_attention == "none" or not settings.global_tokens or not settings.global_relative_positions:
        return None
    return -(-max_positions // settings.global_relative_positions)


def at_random_offsets(positions: Tensor, is_token: Tensor, last: int) -> Tensor:
    """Move each row by a random number of positions, any that leaves room for it, as training sees rows everywhere."""
    room = (last - positions.where(is_token, 0).amax(1, keepdim=True)).clamp(min=0)
    offset = (torch.rand(room.shape, device=room.device) * (room + 1)).long().minimum(room)
    return positions + offset * is_token


def check_positions(settings: TwoLevels, may_have: bool = False) -> None:
    """Raise ``ValueError`` where a model without learned positions, which it may have, has a setting about them."""
    for name in ("random_position_offsets", "position_init"):
        if (value := getattr(settings, name)) != DEFAULTS[name]:
            remedy = f", or give {settings.spelled('absolute_positions', True)}" if may_have else ""
            spelled = settings.spelled(name, value)
            raise ValueError(f"{spelled} is about learned positions, and this model has none: leave it out{remedy}")
