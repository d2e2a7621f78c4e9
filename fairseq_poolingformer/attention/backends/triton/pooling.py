"""Pools of keys and values on the grid by Triton kernels: one launch forward, two and a sum backward.

A program has a block of pools, or in ``backward_tokens`` of tokens, of one row of the batch. Sources ``x`` are
(B, H, S, D), D contiguous, keys at ``x_k`` and values at ``x_v``; ``out`` and ``grad`` are (sources, B, H, P, D).
``weight`` (sources, sets·κ, H·D) and ``bias`` (sources, sets·κ) belong to the LDConv kinds, ``delta``
(sources, B, sets, P, κ) are their dynamic weights. ``centre`` and ``count`` (B, P), or one row for all, are the token
that gives a pool's dynamic weights and the number of its real tokens. Padding is never read.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_poolingformer.attention.backends.triton.arguments import TileShape, padded
from fairseq_poolingformer.attention.backends.triton.launcher import launch

POOLS, TOKENS, CHANNELS = 16, 32, 128  # of a program's tiles
SHAPE = TileShape(TOKENS, POOLS, num_warps=4, num_stages=2)
VARYING = ["num_tokens", "num_pools", "stride_c"]


@triton.jit
def _channel_places(channels, stride_h, HEAD_DIM: tl.constexpr):
    """Where the channels 0 … H·D − 1 of a token lie."""
    return (channels // HEAD_DIM).to(tl.int64) * stride_h + channels % HEAD_DIM


@triton.jit
def _real(hidden, batch, tokens, valid, num_tokens):
    """Which tokens of a row are real, of those that are ``valid``."""
    real = valid & (tokens < num_tokens)
    if hidden is not None:
        real = real & (tl.load(hidden + batch * num_tokens + tokens, mask=real, other=1) == 0)
    return real


@triton.jit
def _load_tap(x, stride_s, first_token, tap, taps, real, places, valid):
    """Each pool's token number ``tap`` in the channels at ``places``: (pools, channels) float32, 0 for padding."""
    there = tl.sum(tl.where(taps[None, :] == tap, real.to(tl.int32), 0), 1) > 0
    tokens = (first_token + tap).to(tl.int64)
    mask = there[:, None] & valid[None, :]
    return tl.load(x + tokens[:, None] * stride_s + places[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _context(
    x, stride_s, first_token, taps, real, centre, count, places, valid, KAPPA: tl.constexpr, OF_MEAN: tl.constexpr
):
    """The vectors that give dynamic weights (eq. 10, 11): (pools, channels) in the dtype of ``x``."""
    if OF_MEAN:
        total = tl.zeros([first_token.shape[0], places.shape[0]], tl.float32)
        for tap in tl.static_range(KAPPA):
            total += _load_tap(x, stride_s, first_token, tap, taps, real, places, valid)
        context = (total / tl.maximum(count, 1).to(tl.float32)[:, None]).to(x.dtype.element_ty)
    else:
        mask = (count > 0)[:, None] & valid[None, :]
        context = tl.load(x + centre.to(tl.int64)[:, None] * stride_s + places[None, :], mask=mask, other=0.0)
    return context


@triton.jit(do_not_specialize=VARYING)
def forward(
    x_k, x_v, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    hidden, centre, count, stride_c, num_tokens, num_pools, channels,
    weight, bias, out, stride_on, stride_ob, stride_oh, stride_op, delta,
    HEAD_DIM: tl.constexpr, KAPPA: tl.constexpr, XI: tl.constexpr, SETS: tl.constexpr, TAPS: tl.constexpr,
    OF_MEAN: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Write ``out`` and ``delta``. Grid: (pool blocks, B, sources · sets)."""
    batch, source, number = tl.program_id(1).to(tl.int64), tl.program_id(2) // SETS, tl.program_id(2) % SETS
    pools, taps = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P), tl.arange(0, TAPS)
    exist, first_token = pools < num_pools, pools * XI
    tokens, in_pool = first_token[:, None] + taps[None, :], exist[:, None] & (taps < KAPPA)[None, :]
    real = _real(hidden, batch, tokens, in_pool, num_tokens)
    centre = tl.load(centre + batch * stride_c + pools, mask=exist, other=0)
    count = tl.load(count + batch * stride_c + pools, mask=exist, other=0)
    if source == 0:
        x, stride_h, stride_s = x_k + batch * stride_kb, stride_kh, stride_ks
    else:
        x, stride_h, stride_s = x_v + batch * stride_vb, stride_vh, stride_vs
    if weight is None:
        weights = tl.where(real, 1.0 / tl.maximum(count, 1).to(tl.float32)[:, None], 0.0)
    else:
        first_row = (source * SETS + number) * KAPPA
        logits = tl.zeros([BLOCK_P, TAPS], tl.float32)
        for start in range(0, channels, BLOCK_C):
            c = start + tl.arange(0, BLOCK_C)
            places = _channel_places(c, stride_h, HEAD_DIM)
            v = _context(x, stride_s, first_token, taps, real, centre, count, places, c < channels, KAPPA, OF_MEAN)
            mask = (c < channels)[:, None] & (taps < KAPPA)[None, :]
            w = tl.load(weight + (first_row + taps)[None, :] * channels + c[:, None], mask=mask, other=0.0)
            logits = tl.dot(v, w.to(v.dtype), logits, input_precision="ieee")
        if bias is not None:
            logits += tl.load(bias + first_row + taps, mask=taps < KAPPA, other=0.0).to(tl.float32)[None, :]
        logits = tl.where(real, logits, float("-inf"))
        weights = tl.exp(logits - tl.maximum(tl.max(logits, 1), -1e38)[:, None])  # 0 in pools without a real token
        weights = weights / tl.maximum(tl.sum(weights, 1), 1e-38)[:, None]
        row = ((source * tl.num_programs(1) + batch) * SETS + number) * num_pools + pools
        tl.store(delta + row[:, None] * KAPPA + taps[None, :], weights, mask=exist[:, None] & (taps < KAPPA)[None, :])
    out += source * stride_on + batch * stride_ob
    size = channels // SETS  # of the channels that a set of weights serves
    for start in range(0, size, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        valid, c = c < size, number * size + c
        places = _channel_places(c, stride_h, HEAD_DIM)
        total = tl.zeros([BLOCK_P, BLOCK_C], tl.float32)
        for tap in tl.static_range(KAPPA):
            of_tap = tl.sum(tl.where(taps[None, :] == tap, weights, 0.0), 1)
            total += of_tap[:, None] * _load_tap(x, stride_s, first_token, tap, taps, real, places, valid)
        to = out + pools.to(tl.int64)[:, None] * stride_op + _channel_places(c, stride_oh, HEAD_DIM)[None, :]
        tl.store(to, total.to(out.dtype.element_ty), mask=exist[:, None] & valid[None, :])


@triton.jit(do_not_specialize=VARYING)
def backward_weights(
    x_k, x_v, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    hidden, centre, count, stride_c, num_tokens, num_pools, channels,
    grad, stride_gn, stride_gb, stride_gh, stride_gp, delta, grad_logits, partial,
    HEAD_DIM: tl.constexpr, KAPPA: tl.constexpr, XI: tl.constexpr, SETS: tl.constexpr, TAPS: tl.constexpr,
    OF_MEAN: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Write ``grad_logits``, like ``delta``, and each program's share of the gradients of ``weight`` and ``bias``.

    ``partial`` is (pool blocks · B, sources, sets·κ, H·D + 1), the bias last. Grid as :func:`forward`'s.
    """
    batch, source, number = tl.program_id(1).to(tl.int64), tl.program_id(2) // SETS, tl.program_id(2) % SETS
    pools, taps = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P), tl.arange(0, TAPS)
    exist, first_token = pools < num_pools, pools * XI
    tokens, in_pool = first_token[:, None] + taps[None, :], exist[:, None] & (taps < KAPPA)[None, :]
    real = _real(hidden, batch, tokens, in_pool, num_tokens)
    centre = tl.load(centre + batch * stride_c + pools, mask=exist, other=0)
    count = tl.load(count + batch * stride_c + pools, mask=exist, other=0)
    if source == 0:
        x, stride_h, stride_s = x_k + batch * stride_kb, stride_kh, stride_ks
    else:
        x, stride_h, stride_s = x_v + batch * stride_vb, stride_vh, stride_vs
    grad += source * stride_gn + batch * stride_gb
    size = channels // SETS
    grad_weights = tl.zeros([BLOCK_P, TAPS], tl.float32)
    for start in range(0, size, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        valid, c = c < size, number * size + c
        places = _channel_places(c, stride_h, HEAD_DIM)
        of_grad = grad + pools.to(tl.int64)[:, None] * stride_gp + _channel_places(c, stride_gh, HEAD_DIM)[None, :]
        g = tl.load(of_grad, mask=exist[:, None] & valid[None, :], other=0.0).to(tl.float32)
        for tap in tl.static_range(KAPPA):
            product = tl.sum(g * _load_tap(x, stride_s, first_token, tap, taps, real, places, valid), 1)
            grad_weights += tl.where(taps[None, :] == tap, product[:, None], 0.0)
    row = ((source * tl.num_programs(1) + batch) * SETS + number) * num_pools + pools
    row, mask = row[:, None] * KAPPA + taps[None, :], exist[:, None] & (taps < KAPPA)[None, :]
    weights = tl.load(delta + row, mask=mask, other=0.0)
    of_logits = weights * (grad_weights - tl.sum(weights * grad_weights, 1)[:, None])
    tl.store(grad_logits + row, of_logits, mask=mask)
    program = tl.program_id(0) * tl.num_programs(1) + batch
    partial += ((program * tl.num_programs(2) + tl.program_id(2)) * KAPPA + taps)[:, None] * (channels + 1)
    for start in range(0, channels, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        places = _channel_places(c, stride_h, HEAD_DIM)
        v = _context(x, stride_s, first_token, taps, real, centre, count, places, c < channels, KAPPA, OF_MEAN)
        of_weight = tl.dot(tl.trans(of_logits).to(v.dtype), v, input_precision="ieee")
        tl.store(partial + c[None, :], of_weight, mask=(taps < KAPPA)[:, None] & (c < channels)[None, :])
    tl.store(partial + channels, tl.sum(of_logits, 0)[:, None], mask=(taps < KAPPA)[:, None])


@triton.jit(do_not_specialize=VARYING)
def backward_tokens(
    grad_k, grad_v, stride_kb, stride_kh, stride_ks,
    hidden, centre, count, stride_c, num_tokens, num_pools, channels,
    weight, grad, stride_gn, stride_gb, stride_gh, stride_gp, delta, grad_logits,
    HEAD_DIM: tl.constexpr, KAPPA: tl.constexpr, XI: tl.constexpr, SETS: tl.constexpr, TAPS: tl.constexpr,
    OF_MEAN: tl.constexpr, SOURCES: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Write ``grad_k`` and ``grad_v``, or where both are one tensor their sum, which is laid out alike.

    A token lies in at most ⌈κ/ξ⌉ pools. Grid: (token blocks, B, channel blocks · different gradients).
    """
    TOGETHER: tl.constexpr = grad_v is None
    batch, blocks = tl.program_id(1).to(tl.int64), tl.cdiv(channels, BLOCK_C)
    tokens, taps = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T), tl.arange(0, TAPS)
    c = tl.program_id(2) % blocks * BLOCK_C + tl.arange(0, BLOCK_C)
    valid, kind = c < channels, tl.program_id(2) // blocks
    real = _real(hidden, batch, tokens, tokens >= 0, num_tokens)
    total = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    for other in range(0, SOURCES if TOGETHER else 1):
        source = other if TOGETHER else kind
        of_grad = grad + source * stride_gn + batch * stride_gb + _channel_places(c, stride_gh, HEAD_DIM)[None, :]
        for back in tl.static_range((KAPPA + XI - 1) // XI):
            pools = tokens // XI - back
            tap = tokens - pools * XI
            inside = real & (pools >= 0) & (pools < num_pools) & (tap < KAPPA)
            mask = inside[:, None] & valid[None, :]
            g = tl.load(of_grad + pools.to(tl.int64)[:, None] * stride_gp, mask=mask, other=0.0).to(tl.float32)
            place = batch * stride_c + pools
            if weight is None:
                number = tl.load(count + place, mask=inside, other=1)
                total += g / number.to(tl.float32)[:, None]
            else:
                row = (source * tl.num_programs(1) + batch) * SETS * num_pools + pools
                if SETS == 1:
                    total += g * tl.load(delta + row * KAPPA + tap, mask=inside, other=0.0)[:, None]
                else:
                    of_set = row[:, None] + (c // (channels // SETS))[None, :] * num_pools
                    total += g * tl.load(delta + of_set * KAPPA + tap[:, None], mask=mask, other=0.0)
                if OF_MEAN:
                    share = 1.0 / tl.load(count + place, mask=inside, other=1).to(tl.float32)
                else:
                    inside = inside & (tl.load(centre + place, mask=inside, other=-1) == tokens)
                    share = tl.full([BLOCK_T], 1.0, tl.float32)
                for number in tl.static_range(SETS):  # to the vector that gave the pool its dynamic weights
                    of_logits = grad_logits + (row + number * num_pools)[:, None] * KAPPA + taps[None, :]
                    x = tl.load(of_logits, mask=inside[:, None] & (taps < KAPPA)[None, :], other=0.0) * share[:, None]
                    of_weight = weight + ((source * SETS + number) * KAPPA + taps)[:, None] * channels + c[None, :]
                    w = tl.load(of_weight, mask=(taps < KAPPA)[:, None] & valid[None, :], other=0.0)
                    total = tl.dot(x.to(w.dtype), w, total, input_precision="ieee")
    out = grad_k
    if not TOGETHER:  # noqa: SIM102 (decided by the compiler, which cannot select None)
        if kind > 0:
            out = grad_v
    out += batch * stride_kb + _channel_places(c, stride_kh, HEAD_DIM)[None, :]
    to = out + tokens.to(tl.int64)[:, None] * stride_ks
    tl.store(to, total.to(grad_k.dtype.element_ty), mask=(tokens < num_tokens)[:, None] & valid[None, :])


class Pools(torch.autograd.Function):
    """``Pools.apply(key, value, weight, bias, real, kernel_size, stride, of_mean)``: (sources, B, H, P, D).

    Without ``value`` there is one source; with ``value`` the tensor ``key`` itself both read the same one. ``real`` are
    ``hidden``, ``centre`` and ``count`` as the kernels read them.
    """

    @staticmethod
    def forward(ctx, key, value, weight, bias, real, kernel_size: int, stride: int, of_mean: bool) -> Tensor:
        batch, heads, num_tokens, head_dim = key.shape
        ctx.together, ctx.sources = value is None or value is key, 1 if value is None else 2
        key = key if key.stride(-1) == 1 else key.contiguous()
        value = key if ctx.together else value if value.stride(-1) == 1 else value.contiguous()
        hidden, centre, count = real
        num_pools, sets = centre.size(1), 1 if weight is None else weight.size(1) // kernel_size
        out = key.new_empty(ctx.sources, batch, num_pools, heads, head_dim).transpose(2, 3)
        delta = None
        if weight is not None:
            shape = ctx.sources, batch, sets, num_pools, kernel_size
            delta = torch.empty(shape, dtype=torch.float32, device=key.device)
        stride_c = centre.stride(0) if centre.size(0) > 1 else 0
        ctx.geometry = head_dim, kernel_size, stride, sets, padded(kernel_size), of_mean
        ctx.sources_line = *key.stride()[:3], *value.stride()[:3]
        ctx.tokens_line = hidden, centre, count, stride_c, num_tokens, num_pools, heads * head_dim
        ctx.has_bias = bias is not None
        grid = -(-num_pools // POOLS), batch, ctx.sources * sets
        launch(
            forward, grid, SHAPE, key, value, *ctx.sources_line, *ctx.tokens_line,
            weight, bias, out, *out.stride()[:4], delta,
            *ctx.geometry, POOLS, CHANNELS,
        )  # fmt: skip
        ctx.save_for_backward(key, value, weight, delta)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        key, value, weight, delta = ctx.saved_tensors
        batch, heads, num_tokens, head_dim = key.shape
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        num_pools, channels, sets = grad.size(3), heads * head_dim, ctx.geometry[3]
        grad_logits = grad_weight = grad_bias = None
        if weight is not None:
            blocks, grad_logits = -(-num_pools // POOLS), torch.empty_like(delta)
            partial = delta.new_empty(blocks * batch, *weight.shape[:2], channels + 1)
            grid = blocks, batch, ctx.sources * sets
            launch(
                backward_weights, grid, SHAPE, key, value, *ctx.sources_line, *ctx.tokens_line,
                grad, *grad.stride()[:4], delta, grad_logits, partial, *ctx.geometry, POOLS, CHANNELS,
            )  # fmt: skip
            total = partial.sum(0).to(weight.dtype)
            grad_weight, grad_bias = total[..., :-1], total[..., -1] if ctx.has_bias else None
        # laid out as (S, B, H, D), fairseq's layout, as the gradients of attention are
        grad_key = key.new_empty(num_tokens, batch, heads, head_dim).permute(1, 2, 0, 3)
        grad_value = None if ctx.together else torch.empty_like(grad_key)
        grid = -(-num_tokens // TOKENS), batch, -(-channels // CHANNELS) * (1 if ctx.together else 2)
        launch(
            backward_tokens, grid, SHAPE,
            grad_key, grad_value, *grad_key.stride()[:3], *ctx.tokens_line, weight, grad, *grad.stride()[:4],
            delta, grad_logits, *ctx.geometry, ctx.sources, TOKENS, CHANNELS,
        )  # fmt: skip
        return grad_key, grad_value, grad_weight, grad_bias, None, None, None, None
