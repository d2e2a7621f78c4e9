"""Loop-by-loop twins in float64, written from the papers: what the operator, the pooling and the module are held to."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor


def sees(i: int, j: int, *, left, right, dilation=1) -> bool:
    """eq. 3 and Longformer's dilation, as a set."""
    taps = [i + m * dilation for m in range(-left, right + 1)]
    return j in taps


def starts_of_own_pools(i: int, *, left, right, kernel_size, stride) -> list[int]:
    """Where the pools of query i start, by eq. 6–7 read literally: they cut up its own window from its left edge on."""
    return list(range(i - left, i + right - kernel_size + 2, stride))


def sees_pool(i: int, j: int, *, left, right, kernel_size, stride, alignment) -> bool:
    """Whether query i sees pooled key j, by DESIGN's two readings of eq. 6–7."""
    if alignment == "grid":
        centre = j * stride + (kernel_size - 1) / 2
        return -left <= centre - i <= right
    start = j - (kernel_size - 1)
    return start in starts_of_own_pools(i, left=left, right=right, kernel_size=kernel_size, stride=stride)


def visibility(*, window, pooling=None, global_mask=None, key_padding_mask=None, query_offset=0):
    """Which keys each query sees in a call of the operator, as :func:`attend` asks it."""
    sides = {"left": window.left, "right": window.right}

    def visible(b, h, t, s):
        i = query_offset + t
        if key_padding_mask is not None and key_padding_mask[b, s]:
            return False
        if pooling is not None:
            return sees_pool(i, s, **sides, **dataclasses.asdict(pooling))
        if global_mask is not None and (global_mask[b, s] or (0 <= i < global_mask.size(1) and global_mask[b, i])):
            return True
        dilation = window.dilation if isinstance(window.dilation, int) else window.dilation[h]
        return sees(i, s, **sides, dilation=dilation)

    return visible


def attend(q: Tensor, k: Tensor, v: Tensor, visible, scale: float, bias=None) -> Tensor:
    """One softmax a query over what ``visible(b, h, t, s)`` allows; zeros where it allows nothing."""
    batch, heads, queries, _ = q.shape
    out = q.new_zeros(batch, heads, queries, v.size(-1))
    for b in range(batch):
        for h in range(heads):
            for t in range(queries):
                keys = [s for s in range(k.size(2)) if visible(b, h, t, s)]
                if not keys:
                    continue
                scores = [scale * (q[b, h, t] @ k[b, h, s]) + (bias[h][t][s] if bias else 0.0) for s in keys]
                weights = torch.stack(scores).exp()  # the scores are small, and so may gradients flow through
                for s, weight in zip(keys, weights / weights.sum(), strict=True):
                    out[b, h, t] += weight * v[b, h, s]
    return out


def pool_starts(tokens: int, *, kernel_size, stride, alignment) -> range:
    """The first token of each pool that has a token of the sequence; with query alignment pools start everywhere."""
    return range(0, tokens, stride) if alignment == "grid" else range(1 - kernel_size, tokens)


def rotate(x: Tensor, places: Tensor, theta: float = 50.0) -> Tensor:
    """Rotary positions as complex numbers: dimensions d and d + D/2 times exp(i · place · theta^(−2d/D)).

    ``x`` is (B, H, S, D), ``places`` (S,) or (B, S).
    """
    half = x.size(-1) // 2
    angles = places.double()[..., None] * theta ** (-torch.arange(half).double() / half)
    turns = torch.polar(torch.ones_like(angles), angles)
    z = torch.complex(x[..., :half], x[..., half:]) * (turns if places.dim() == 1 else turns[:, None])
    return torch.cat([z.real, z.imag], -1)


def pool_centres(starts, *, kernel_size, padding) -> Tensor:
    """(B, P) half-way between the first and the last real token of each pool; 0 for empty ones."""
    centres = torch.zeros(len(padding), len(starts), dtype=torch.float64)
    for b, row in enumerate(padding.tolist()):
        for p, start in enumerate(starts):
            real = [t for t in range(start, start + kernel_size) if 0 <= t < len(row) and not row[t]]
            centres[b, p] = (real[0] + real[-1]) / 2 if real else 0.0
    return centres


def pool(x: Tensor, starts, *, kernel_size, kind, padding=None, weight=None) -> tuple[Tensor, Tensor]:
    """Pools one by one over real tokens only (eq. 9–11); returns pooled (B, H, P, D) and the empty ones (B, P)."""
    batch, heads, tokens, head_dim = x.shape
    pooled = torch.zeros(batch, heads, len(starts), head_dim, dtype=x.dtype)
    empty = torch.zeros(batch, len(starts), dtype=torch.bool)
    sets = 0 if weight is None else weight.size(0) // kernel_size
    for b in range(batch):
        for p, start in enumerate(starts):
            real = [
                (tap, start + tap)
                for tap in range(kernel_size)
                if 0 <= start + tap < tokens and not (padding is not None and padding[b, start + tap])
            ]
            if not real:
                empty[b, p] = True
                continue
            vectors = torch.stack([x[b, :, token] for _, token in real])  # (n, H, D)
            if kind == "mean":
                pooled[b, :, p] = vectors.mean(0)
            elif kind == "max":
                pooled[b, :, p] = vectors.max(0).values
            else:
                centre = math.ceil((1 + kernel_size) / 2) - 1
                before = [token for tap, token in real if tap <= centre]
                context = x[b, :, before[-1] if before else real[0][1]] if kind == "ldconv" else vectors.mean(0)
                logits = (weight @ context.reshape(-1)).view(sets, kernel_size)[:, [tap for tap, _ in real]]
                for h in range(heads):
                    delta = logits[h * sets // heads].softmax(-1)
                    pooled[b, h, p] = (delta[:, None] * vectors[:, h]).sum(0)
    return pooled, empty
