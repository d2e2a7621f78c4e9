"""Pools of keys and values on the grid by Triton kernels: one launch forward, two and a sum backward.

A program has a block of pools, or in ``backward_tokens`` of tokens, of one row of the batch. Sources ``x`` are
(B, H, S, D), D contiguous, keys at ``x_k`` and values at ``x_v``; ``out`` and ``grad`` are (sources, B, H, P, D).
``weight`` (sources, sets·κ, H·D) and ``bias`` (sources, sets·κ) belong to the LDConv kinds, ``delta``
(sources, B, sets, P, κ) are their dynamic weights. ``centre`` and ``count`` (B, P), or one row for all, are the token
that gives a pool's dynamic weights and the number of its real tokens. Padding is never read.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fairseq_poolingformer.attention.backends.plan import empty_like, strides_of_empty
from fairseq_poolingformer.attention.backends.triton.arguments import TileShape, padded
from fairseq_poolingformer.attention.backends.triton.launcher import Launch
from fairseq_poolingformer.attention.first_order import first_order

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
    x_k, x_v, hidden, centre, count, weight, bias, out, delta,
    stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs, stride_c, num_tokens, num_pools, channels,
    stride_on, stride_ob, stride_oh, stride_op,
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
    x_k, x_v, hidden, centre, count, grad, delta, grad_logits, partial,
    stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs, stride_c, num_tokens, num_pools, channels,
    stride_gn, stride_gb, stride_gh, stride_gp,
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
    grad_k, grad_v, hidden, centre, count, weight, grad, delta, grad_logits,
    stride_kb, stride_kh, stride_ks, stride_c, num_tokens, num_pools, channels,
    stride_gn, stride_gb, stride_gh, stride_gp,
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


class PoolingGeometry(NamedTuple):
    """The numbers of a call, from which its launches follow; strides are of batch, heads and length."""

    device: torch.device
    dtype: torch.dtype
    shape: torch.Size  # of the keys
    key: tuple[int, ...]  # strides
    value: tuple[int, ...]
    stride_c: int  # of centres and counts
    num_pools: int
    kernel_size: int
    stride: int
    of_mean: bool
    sets: int  # of weights
    sources: int  # 1, or 2 of which ``value`` is None where both are ``key``
    grad: tuple[int, ...] = ()  # four strides, in the backward pass

    @classmethod
    def of(
        cls, numbers: tuple[Any, ...], key: Tensor, value: Tensor | None, weight: Tensor | None, centre: Tensor
    ) -> PoolingGeometry:
        """``numbers`` are kernel_size, stride, of_mean and sources."""
        strides, (kernel_size, stride, of_mean, sources) = key.stride()[:3], numbers
        sets = 1 if weight is None else weight.size(1) // kernel_size
        stride_c, num_pools = centre.stride(0) if centre.size(0) > 1 else 0, centre.size(1)
        of_value = strides if value is None else value.stride()[:3]
        pooling = kernel_size, stride, of_mean
        return cls(key.device, key.dtype, key.shape, strides, of_value, stride_c, num_pools, *pooling, sets, sources)

    @property
    def constants(self) -> tuple[Any, ...]:
        """HEAD_DIM … OF_MEAN."""
        return self.shape[3], self.kernel_size, self.stride, self.sets, padded(self.kernel_size), self.of_mean

    @property
    def sizes(self) -> tuple[int, ...]:
        """stride_c … channels."""
        return self.stride_c, self.shape[2], self.num_pools, self.shape[1] * self.shape[3]


@lru_cache(maxsize=256)
def _forward_of(g: PoolingGeometry) -> Launch:
    (batch, heads, _, head_dim), num_pools = g.shape, g.num_pools
    grid = -(-num_pools // POOLS), batch, g.sources * g.sets
    out = batch * num_pools * heads * head_dim, num_pools * heads * head_dim, head_dim, heads * head_dim
    return Launch(forward, grid, SHAPE, *g.key, *g.value, *g.sizes, *out, *g.constants, POOLS, CHANNELS)


@lru_cache(maxsize=256)
def _backward_of(g: PoolingGeometry, together: bool) -> tuple[Launch, Launch]:
    """The launches of :func:`backward_weights` and of :func:`backward_tokens`."""
    batch, heads, num_tokens, head_dim = g.shape
    weights = Launch(
        backward_weights, (-(-g.num_pools // POOLS), batch, g.sources * g.sets), SHAPE,
        *g.key, *g.value, *g.sizes, *g.grad, *g.constants, POOLS, CHANNELS,
    )  # fmt: skip
    grid = -(-num_tokens // TOKENS), batch, -(-heads * head_dim // CHANNELS) * (1 if together else 2)
    tokens = Launch(
        backward_tokens, grid, SHAPE, *strides_of_empty(batch, heads, head_dim), *g.sizes, *g.grad,
        *g.constants, g.sources, TOKENS, CHANNELS,
    )  # fmt: skip
    return weights, tokens


def _dense(x: Any) -> Any:
    return x if x is None or x.stride(-1) == 1 else x.contiguous()


def pools(
    numbers: tuple[Any, ...],
    key: Tensor,
    value: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    real: tuple[Tensor | None, Tensor, Tensor],
) -> tuple[Tensor, Tensor | None]:
    """``out`` (sources, B, H, P, D), and ``delta``, None without ``weight``; see :class:`Pools`."""
    key, value = _dense(key), _dense(value)
    geometry, (batch, heads, _, head_dim) = PoolingGeometry.of(numbers, key, value, weight, real[1]), key.shape
    sources, num_pools, delta = geometry.sources, geometry.num_pools, None
    out = key.new_empty(sources, batch, num_pools, heads, head_dim).transpose(2, 3)
    if weight is not None:
        delta = key.new_empty(sources, batch, geometry.sets, num_pools, geometry.kernel_size, dtype=torch.float32)
    with torch.cuda.device_of(key):
        _forward_of(geometry)(key, key if value is None else value, *real, weight, bias, out, delta)
    return out, delta


def gradients(
    numbers: tuple[Any, ...],
    key: Tensor,
    value: Tensor | None,
    weight: Tensor | None,
    real: tuple[Tensor | None, Tensor, Tensor],
    delta: Tensor | None,
    grad: Tensor,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of key, value, weight and bias; that of key is of both sources where ``value`` is None."""
    key, value, grad = _dense(key), _dense(value), _dense(grad)
    geometry = PoolingGeometry.of(numbers, key, value, weight, real[1])._replace(grad=grad.stride()[:4])
    of_weights, of_tokens = _backward_of(geometry, value is None)
    grad_logits = grad_weight = grad_bias = grad_value = None
    if weight is not None and delta is not None:
        grad_logits, (blocks, batch, _) = torch.empty_like(delta), of_weights.grid
        partial = delta.new_empty(blocks * batch, *weight.shape[:2], key.size(1) * key.size(3) + 1)
        of_weights(key, key if value is None else value, *real, grad, delta, grad_logits, partial)
        total = partial.sum(0).to(weight.dtype)
        grad_weight, grad_bias = total[..., :-1], total[..., -1]
    # laid out as (S, B, H, D), fairseq's layout, as the gradients of attention are
    grad_key = empty_like(key)
    grad_value = None if value is None else empty_like(key)
    of_tokens(grad_key, grad_value, *real, weight, grad, delta, grad_logits)
    return grad_key, grad_value, grad_weight, grad_bias


class Pools(torch.autograd.Function):
    """Pools (sources, B, H, P, D) with gradients.

    Without ``value`` there is one source, unless ``numbers`` say that both are ``key``. ``real`` are ``hidden``,
    ``centre`` and ``count`` as the kernels read them.
    """

    @staticmethod
    def forward(ctx, numbers: tuple[Any, ...], key, value, weight, bias, real) -> Tensor:
        out, delta = pools(numbers, key, value, weight, bias, real)
        ctx.numbers, ctx.real = numbers, real
        ctx.save_for_backward(key, value, weight, bias, delta)
        return out

    @staticmethod
    @first_order
    def backward(ctx, saved, grad: Tensor):
        key, value, weight, bias, delta = saved
        *grads, grad_bias = gradients(ctx.numbers, key, value, weight, ctx.real, delta, grad)
        return None, *grads, None if bias is None else grad_bias, None
