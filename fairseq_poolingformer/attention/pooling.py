"""Pooling of keys and values over overlapping pools of tokens (eq. 6–7, 9–11)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_exporting

from fairseq_poolingformer.attention import graph
from fairseq_poolingformer.attention.backends import self_check
from fairseq_poolingformer.attention.backends.triton import backend
from fairseq_poolingformer.attention.first_order import first_order
from fairseq_poolingformer.attention.masks import Masks
from fairseq_poolingformer.attention.patterns import Pooling, require_kind
from fairseq_poolingformer.choices import POOL_TYPES


def pool_keys(
    x: Tensor,
    pooling: Pooling,
    *,
    kind: str = "mean",
    padding_mask: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Pool neighbouring vectors of ``x``: every pool of κ tokens becomes one pooled key or value.

    Only real tokens take part: padding and positions beyond either end of the sequence count neither in a mean's
    denominator, nor in a maximum, nor in the softmax of the dynamic weights.

    - ``mean``, ``max``: over the pool's tokens.
    - ``ldconv`` (eq. 9–10): ``Σ δ_i v_i`` with ``δ = softmax(W_p v_c)``, c the pool's centre ⌈(1+κ)/2⌉ (1-based).
      Where that is no real token, the nearest real one before it takes its place, or else the nearest after it.
    - ``mean-ldconv`` (eq. 11): the same with the pool's mean in place of v_c.

    Args:
        x: (B, H, S, D) keys or values.
        pooling: kernel size κ, stride ξ, alignment. On the grid there are ⌈S/ξ⌉ pools, which start at 0, ξ, 2ξ, …;
            with query alignment S + κ − 1, which start at −(κ − 1), …, −1, 0, 1, …, S − 1.
        kind: one of :data:`POOL_TYPES`.
        padding_mask: (B, S) bool, True at padding.
        weight: (ldconv_heads·κ, H·D), W_p of the two LDConv kinds, whose rows are grouped by set of weights; each set
            serves H / ldconv_heads neighbouring heads.
        bias: (ldconv_heads·κ,), added to what W_p gives; the paper has none.

    Returns:
        ``pooled`` (B, H, P, D), and (B, P) bool, True at pools without a real token (which are zero in
        ``pooled``), or None when there is no ``padding_mask``.

    Raises:
        ValueError: an argument has the wrong shape, or ``weight`` does not go with ``kind``.
    """
    _check(x, pooling, kind, padding_mask, weight, bias)
    masks = Masks(None, padding_mask)
    pooled = pool(x, pooling, kind, masks, weight, bias)
    return pooled, masks.derived(pool_masks, pooling, x.size(2), x.device).padding


def pool_masks(masks: Masks, pooling: Pooling, num_tokens: int, device: torch.device) -> Masks:
    """The masks of the pools: those without a real token are hidden."""
    if masks.padding is None:
        return Masks()
    return Masks(None, ~masks.derived(_real_taps, pooling, num_tokens, device).any(-1))


def has_kernels(x: Tensor, pooling: Pooling, kind: str) -> bool:
    """Whether Triton kernels pool ``x``: on GPUs, means and LDConv on the grid."""
    if is_exporting() or kind == "max" or pooling.alignment != "grid" or not backend.pools(x, pooling.kernel_size):
        return False
    if not x.is_cuda or torch.compiler.is_compiling():
        return True
    return self_check.passes("the pooling kernel", kernels_differ, x.dtype, x.device, x.size(3), pooling, kind)


def kernels_differ(dtype: torch.dtype, device: torch.device, head_dim: int, pooling: Pooling, kind: str) -> str | None:
    """The kernels' error beside PyTorch in float64, of two short rows, one with padding; None where it is small."""
    generator, tokens, size = torch.Generator().manual_seed(0), 3 * pooling.kernel_size + 50, pooling.kernel_size
    shapes = [(2, 2, tokens, head_dim), (2, 2, tokens, head_dim), (2, size, 2 * head_dim), (2, size)]
    inputs = [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]
    inputs = [inputs[0], inputs[1], inputs[2] / 8, inputs[3]][: 4 if "ldconv" in kind else 2]
    masks = Masks(None, torch.arange(tokens, device=device) >= torch.tensor([[tokens], [40]], device=device))
    leaves = [x.requires_grad_() for x in inputs]
    out = pool_pair(leaves[0], leaves[1], pooling, kind, masks, leaves[2:] or (None, None))
    exact = [x.detach().double().requires_grad_() for x in inputs]
    rows: list[Any] = [[x[i] for x in exact[2:]] or [None] for i in range(2)]
    pooled = torch.stack([pool(exact[i], pooling, kind, masks, *rows[i]) for i in range(2)])
    results = out, *torch.autograd.grad(out.sin().sum(), leaves)
    expected = pooled, *torch.autograd.grad(pooled.sin().sum(), exact)
    return self_check.excess(self_check.largest_error(results, expected), dtype)


def pool_pair(
    key: Tensor, value: Tensor | None, pooling: Pooling, kind: str, masks: Masks, weights: Iterable[Tensor | None]
) -> Tensor:
    """Keys and values pooled by Triton kernels: (2, B, H, P, D), or (1, …) without ``value``.

    ``weights`` are the weight (2, sets·κ, H·D) and the bias (2, sets·κ) of :func:`pool_keys`, stacked.
    """
    real = masks.derived(_real_of_kernels, pooling, key.size(2), key.device)
    weight, bias = (None if x is None else x.to(key.dtype).contiguous() for x in weights)
    sources, value = 1 if value is None else 2, None if value is key else value
    numbers = pooling.kernel_size, pooling.stride, kind == "mean-ldconv", sources
    run = graph.pooled if torch.compiler.is_compiling() else backend.pooling.Pools.apply
    return run(numbers, key, value, weight, bias, real)


def _real_of_kernels(
    masks: Masks, pooling: Pooling, num_tokens: int, device: torch.device
) -> tuple[Tensor | None, Tensor, Tensor]:
    """(B, S) uint8, 1 at padding; the centre of each pool and its number of real tokens, (B or 1, P) int32."""
    hidden = None if masks.padding is None else masks.padding.to(torch.uint8, memory_format=torch.contiguous_format)
    centre, real = (masks.derived(f, pooling, num_tokens, device) for f in (_centre_index, _real_taps))
    return hidden, centre.int(), real.sum(-1, dtype=torch.int32)


def pool(
    x: Tensor, pooling: Pooling, kind: str, masks: Masks, weight: Tensor | None, bias: Tensor | None = None
) -> Tensor:
    """:func:`pool_keys` with the :class:`Masks` of the tokens, of checked arguments."""
    if has_kernels(x, pooling, kind):
        stacked = (None if tensor is None else tensor[None] for tensor in (weight, bias))
        return pool_pair(x, None, pooling, kind, masks, stacked)[0]
    place = pooling, x.size(2), x.device
    real = masks.derived(_real_taps, *place)
    if kind == "max":
        pooled, empty = _max(x, pooling, masks.padding), masks.derived(pool_masks, *place).padding
        return pooled if empty is None else pooled.masked_fill(empty[:, None, :, None], 0.0)
    if masks.padding is not None:  # their weights are zero, but 0·NaN is NaN
        x = x.masked_fill(masks.padding[:, None, :, None], 0.0)
    if kind == "ldconv":
        context = _take(x, masks.derived(_centre_index, *place))  # v_c
    else:
        # eq. 11: the mean of the pool's real tokens in place of v_c
        uniform = real.to(x.dtype) / real.sum(-1, keepdim=True).clamp(min=1)
        context = _weighted_sum(x, uniform[:, None], pooling)
        if kind == "mean":
            return context
    assert weight is not None  # as _check has it
    bias = None if bias is None else bias.to(x.dtype)
    # eq. 10: δ = softmax(W_p v_c)
    logits = F.linear(context.transpose(1, 2).flatten(2), weight.to(x.dtype), bias)  # (B, P, sets·κ)
    logits = logits.unflatten(2, (-1, pooling.kernel_size)).transpose(1, 2)  # (B, sets, P, κ)
    # the smallest finite number, not -inf: a pool without real tokens must not give NaN
    logits = torch.where(real[:, None], logits, torch.finfo(logits.dtype).min)
    return _weighted_sum(x, logits.softmax(-1).to(x.dtype), pooling)  # eq. 9: Σ δ_i v_i


def _check(
    x: Tensor, pooling: Pooling, kind: str, padding_mask: Tensor | None, weight: Tensor | None, bias: Tensor | None
) -> None:
    require_kind(Tensor, x=x)
    require_kind(Tensor, True, padding_mask=padding_mask, weight=weight, bias=bias)
    require_kind(Pooling, pooling=pooling)
    if x.dim() != 4:
        raise ValueError(f"x must be (B, H, S, D), got shape {tuple(x.shape)}")
    if kind not in POOL_TYPES:
        raise ValueError(f"kind must be one of {POOL_TYPES}, got {kind!r}")
    batch, heads, tokens, head_dim = x.shape
    if padding_mask is not None and (padding_mask.shape != (batch, tokens) or padding_mask.dtype != torch.bool):
        got = f"{tuple(padding_mask.shape)} {padding_mask.dtype}"
        raise ValueError(f"padding_mask must be {(batch, tokens)} bool, got {got}")
    if kind in ("mean", "max"):
        if weight is not None or bias is not None:
            raise ValueError(f"weight and bias belong to the ldconv kinds; leave them out with kind={kind!r}")
        return
    if weight is None:
        raise ValueError(f"kind={kind!r} needs weight, (ldconv_heads·κ, H·D)")
    sets, rest = divmod(weight.size(0), pooling.kernel_size)
    if weight.dim() != 2 or rest or not sets or heads % sets or weight.size(1) != heads * head_dim:
        raise ValueError(
            f"weight must be (ldconv_heads·{pooling.kernel_size}, {heads * head_dim}) with ldconv_heads a divisor "
            f"of {heads} heads, got {tuple(weight.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"bias must be {tuple(weight.shape[:1])}, one number per row of weight, got {tuple(bias.shape)}"
        )


def _starts(num_tokens: int, pooling: Pooling, device: torch.device) -> Tensor:
    """(P,) the token at which each pool starts; negative for pools that are clipped at the beginning."""
    return pooling.first_start + pooling.key_stride * torch.arange(pooling.num_pools(num_tokens), device=device)


def _positions(num_tokens: int, pooling: Pooling, device: torch.device) -> Tensor:
    """(P, κ) the tokens of each pool; some lie before or beyond the sequence."""
    return _starts(num_tokens, pooling, device)[:, None] + torch.arange(pooling.kernel_size, device=device)


def _real_taps(masks: Masks, pooling: Pooling, num_tokens: int, device: torch.device) -> Tensor:
    """Which of the κ positions of each pool hold a real token: (B or 1, P, κ) bool."""
    positions = _positions(num_tokens, pooling, device)
    inside = ((positions >= 0) & (positions < num_tokens))[None]
    if masks.padding is None:
        return inside
    return inside & ~masks.padding[:, positions.clamp(0, num_tokens - 1)]


def _centre_index(masks: Masks, pooling: Pooling, num_tokens: int, device: torch.device) -> Tensor:
    """The token whose vector gives the dynamic weights of each pool: (B or 1, P) indices; any for an empty pool."""
    starts, centre = _starts(num_tokens, pooling, device), pooling.kernel_size // 2  # 0-based ⌈(1+κ)/2⌉
    if masks.padding is None:  # the real token nearest to a centre beyond the sequence is its first or last
        return (starts[None] + centre).clamp(0, num_tokens - 1)
    taps = torch.arange(pooling.kernel_size, device=device)
    real = masks.derived(_real_taps, pooling, num_tokens, device)
    # the centre, else the nearest real token before it, else the nearest after it
    preference = torch.where(taps <= centre, pooling.kernel_size + taps, pooling.kernel_size - taps)
    chosen = torch.where(real, preference, -1).argmax(-1)
    return (starts + chosen).clamp(0, num_tokens - 1)


def _take(x: Tensor, index: Tensor) -> Tensor:
    """Rows ``index`` (B or 1, P) of ``x`` (B, H, S, D): (B, H, P, D)."""
    if index.size(0) == 1:
        return x.index_select(2, index[0])
    return x.gather(2, index[:, None, :, None].expand(-1, x.size(1), -1, x.size(3)))


def _max(x: Tensor, pooling: Pooling, padding_mask: Tensor | None) -> Tensor:
    """The maximum of each pool, -inf where it has no real token: (B, H, P, D)."""
    if padding_mask is not None:
        x = x.masked_fill(padding_mask[:, None, :, None], -torch.inf)
    if is_exporting():
        inside = _real_taps(Masks(), pooling, x.size(2), x.device)[..., None]
        return _taps(x, pooling).masked_fill(~inside, -torch.inf).amax(3)
    return _unfolded(x, pooling).max(-1).values


def _unfolded(x: Tensor, pooling: Pooling) -> Tensor:
    """(B, H, P, D, κ) a view of every pool's tokens, with -inf in the place of those beyond the sequence."""
    pools, kernel_size, stride = pooling.num_pools(x.size(2)), pooling.kernel_size, pooling.key_stride
    before = -pooling.first_start
    after = (pools - 1) * stride + kernel_size - before - x.size(2)
    if before or after > 0:
        x = F.pad(x, (0, 0, before, max(0, after)), value=-torch.inf)
    return x.unfold(2, kernel_size, stride)


def _taps(x: Tensor, pooling: Pooling) -> Tensor:
    """(B, H, P, κ, D) a copy of every pool's tokens; any token in the place of those beyond the sequence."""
    return x[:, :, _positions(x.size(2), pooling, x.device).clamp(min=0).clamp(max=x.size(2) - 1)]


def _weighted_sum(x: Tensor, weights: Tensor, pooling: Pooling) -> Tensor:
    """:class:`_WeightedSum`; in graphs, whose lengths are no numbers, all positions at once."""
    if torch.compiler.is_compiling():
        weights = weights.repeat_interleave(x.size(1) // weights.size(1), dim=1)
        return (_taps(x, pooling) * weights[..., None]).sum(3)
    return _WeightedSum.apply(x, weights, pooling)


def _tap(tap: int, num_tokens: int, pooling: Pooling) -> tuple[slice, slice]:
    """The pools that have a token at their position ``tap``, and these tokens: two slices of the same length."""
    first, stride = pooling.first_start + tap, pooling.key_stride
    skipped = max(0, -(first // stride))  # pools whose tap lies before the sequence
    pools = min(pooling.num_pools(num_tokens), -((first - num_tokens) // stride))
    return slice(skipped, max(skipped, pools)), slice(first + skipped * stride, num_tokens, stride)


class _WeightedSum(torch.autograd.Function):
    """``out[b, h, p] = Σ_i weights[b, set of h, p, i] · x[b, h, start of p + i]``, without an unfolded copy of x.

    One strided multiply-add for each of the κ positions, forward and backward. ``x`` is (B, H, S, D), ``weights``
    (B or 1, sets, P, κ).
    """

    @staticmethod
    def forward(ctx, x: Tensor, weights: Tensor, pooling: Pooling) -> Tensor:
        ctx.save_for_backward(x, weights)
        ctx.pooling = pooling
        batch, heads, num_tokens, head_dim = x.shape
        sets, num_pools, kernel_size = weights.shape[1:]
        out = x.new_zeros(num_pools, batch, heads, head_dim).permute(1, 2, 0, 3)
        grouped, summed = x.unflatten(1, (sets, -1)), out.unflatten(1, (sets, -1))
        for tap in range(kernel_size):
            pools, tokens = _tap(tap, num_tokens, pooling)
            summed[:, :, :, pools].addcmul_(grouped[:, :, :, tokens], weights[:, :, None, pools, tap, None])
        return out

    @staticmethod
    @first_order
    def backward(ctx, saved, grad: Tensor):
        x, weights = saved
        batch, heads, num_tokens, head_dim = x.shape
        sets, _, kernel_size = weights.shape[1:]
        needs_x, needs_weights, _ = ctx.needs_input_grad
        grouped, grad = x.unflatten(1, (sets, -1)), grad.unflatten(1, (sets, -1))
        grad_x = x.new_zeros(num_tokens, batch, heads, head_dim).permute(1, 2, 0, 3) if needs_x else None
        grad_weights = torch.zeros_like(weights) if needs_weights else None
        for tap in range(kernel_size):
            pools, tokens = _tap(tap, num_tokens, ctx.pooling)
            if grad_x is not None:
                grad_tokens = grad_x.unflatten(1, (sets, -1))[:, :, :, tokens]
                grad_tokens.addcmul_(grad[:, :, :, pools], weights[:, :, None, pools, tap, None])
            if grad_weights is not None:
                product = (grad[:, :, :, pools] * grouped[:, :, :, tokens]).sum((2, 4))
                grad_weights[:, :, pools, tap] = product.sum_to_size(grad_weights[:, :, pools, tap].shape)
        return grad_x, grad_weights, None
