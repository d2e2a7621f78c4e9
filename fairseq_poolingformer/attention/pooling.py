"""Pooling of keys and values over overlapping segments (eq. 6–7, 9–11)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_poolingformer.attention.patterns import Pooling

POOL_TYPES = ("ldconv", "mean-ldconv", "mean", "max")


def pool_keys(
    x: Tensor,
    pooling: Pooling,
    *,
    kind: str = "mean",
    padding_mask: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Pool every segment of ``x`` to one vector.

    Real tokens only take part: padding and positions beyond the end count neither in a mean's denominator, nor in a
    maximum, nor in the softmax of the dynamic weights.

    - ``mean``, ``max``: over the segment's tokens.
    - ``ldconv`` (eq. 9–10): ``Σ δ_i v_i`` with ``δ = softmax(W_p v_c)``, c the segment's centre ⌈(1+κ)/2⌉ (1-based).
      Where that is no real token, the nearest real one before it is taken, or else the nearest after it.
    - ``mean-ldconv`` (eq. 11): the same with the segment's mean in place of v_c.

    Args:
        x: (B, H, S, D) keys or values.
        pooling: kernel size κ, stride ξ, alignment. With query alignment every token starts a segment.
        kind: one of :data:`POOL_TYPES`.
        padding_mask: (B, S) bool, True at padding.
        weight: (ldconv_heads·κ, H·D), W_p of the two LDConv kinds, whose rows are grouped by set of weights; each set
            serves H / ldconv_heads neighbouring heads.
        bias: (ldconv_heads·κ,), added to what W_p gives; the paper has none.

    Returns:
        ``pooled`` (B, H, P, D), and (B, P) bool, True at segments without a real token (which are zero in
        ``pooled``), or None when there is no ``padding_mask``.

    Raises:
        ValueError: an argument has the wrong shape, or ``weight`` does not go with ``kind``.
    """
    _check(x, pooling, kind, padding_mask, weight, bias)
    real = _real_taps(x.size(2), pooling, padding_mask, x.device)
    pooled_padding_mask = None if padding_mask is None else ~real.any(-1)
    if kind == "max":
        pooled = _max(x, pooling, padding_mask)
        if pooled_padding_mask is not None:
            pooled = pooled.masked_fill(pooled_padding_mask[:, None, :, None], 0.0)
        return pooled, pooled_padding_mask
    if kind == "ldconv":
        context = _take(x, _centre_index(real, pooling))
    else:
        uniform = real.to(x.dtype) / real.sum(-1, keepdim=True).clamp(min=1)
        context = _weighted_sum(x, uniform[:, None], pooling.key_stride)
        if kind == "mean":
            return context, pooled_padding_mask
    weight, bias = (None if tensor is None else tensor.to(x.dtype) for tensor in (weight, bias))
    logits = F.linear(context.transpose(1, 2).flatten(2), weight, bias)  # (B, P, sets·κ)
    logits = logits.unflatten(2, (-1, pooling.kernel_size)).transpose(1, 2)  # (B, sets, P, κ)
    # the smallest finite number, not -inf: a segment without real tokens must not give NaN
    logits = logits.masked_fill(~real[:, None], torch.finfo(logits.dtype).min)
    dynamic = logits.softmax(-1).to(x.dtype) * real[:, None]
    return _weighted_sum(x, dynamic, pooling.key_stride), pooled_padding_mask


def _check(
    x: Tensor, pooling: Pooling, kind: str, padding_mask: Tensor | None, weight: Tensor | None, bias: Tensor | None
) -> None:
    if x.dim() != 4:
        raise ValueError(f"x must be (B, H, S, D), got shape {tuple(x.shape)}")
    if kind not in POOL_TYPES:
        raise ValueError(f"kind must be one of {POOL_TYPES}, got {kind!r}")
    batch, heads, tokens, head_dim = x.shape
    if padding_mask is not None and padding_mask.shape != (batch, tokens):
        raise ValueError(f"padding_mask must be {(batch, tokens)}, got {tuple(padding_mask.shape)}")
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
        raise ValueError(f"bias must be {tuple(weight.shape[:1])}, one number a row of weight, got {tuple(bias.shape)}")


def _real_taps(num_tokens: int, pooling: Pooling, padding_mask: Tensor | None, device: torch.device) -> Tensor:
    """Which of the κ positions of each segment hold a real token: (B or 1, P, κ) bool."""
    starts = torch.arange(0, num_tokens, pooling.key_stride, device=device)
    positions = starts[:, None] + torch.arange(pooling.kernel_size, device=device)
    inside = (positions < num_tokens)[None]
    if padding_mask is None:
        return inside
    return inside & ~padding_mask[:, positions.clamp(max=num_tokens - 1)]


def _centre_index(real: Tensor, pooling: Pooling) -> Tensor:
    """The token whose vector gives the dynamic weights of each segment: (B or 1, P) indices."""
    taps = torch.arange(pooling.kernel_size, device=real.device)
    centre = pooling.kernel_size // 2  # 0-based ⌈(1+κ)/2⌉
    preference = torch.where(taps <= centre, pooling.kernel_size + taps, pooling.kernel_size - taps)
    chosen = torch.where(real, preference, -1).argmax(-1)
    starts = pooling.key_stride * torch.arange(real.size(1), device=real.device)
    return starts + torch.where(real.any(-1), chosen, 0)


def _take(x: Tensor, index: Tensor) -> Tensor:
    """Rows ``index`` (B or 1, P) of ``x`` (B, H, S, D): (B, H, P, D)."""
    if index.size(0) == 1:
        return x.index_select(2, index[0])
    return x.gather(2, index[:, None, :, None].expand(-1, x.size(1), -1, x.size(3)))


def _max(x: Tensor, pooling: Pooling, padding_mask: Tensor | None) -> Tensor:
    segments = pooling.num_segments(x.size(2))
    if padding_mask is not None:
        x = x.masked_fill(padding_mask[:, None, :, None], -torch.inf)
    covered = (segments - 1) * pooling.key_stride + pooling.kernel_size
    if covered > x.size(2):
        x = F.pad(x, (0, 0, 0, covered - x.size(2)), value=-torch.inf)
    return x.unfold(2, pooling.kernel_size, pooling.key_stride).max(-1).values


def _weighted_sum(x: Tensor, weights: Tensor, stride: int) -> Tensor:
    """``out[b, h, p] = Σ_i weights[b, set of h, p, i] · x[b, h, p·stride + i]``.

    Args:
        x: (B, H, S, D).
        weights: (B or 1, sets, P, κ), zero where a segment runs past the end.
        stride: tokens between segments.
    """
    return _WeightedSum.apply(x, weights, stride)


class _WeightedSum(torch.autograd.Function):
    """One strided multiply-add for each of the κ positions: no unfolded copy of x, forward or backward."""

    @staticmethod
    def forward(ctx, x: Tensor, weights: Tensor, stride: int) -> Tensor:
        ctx.save_for_backward(x, weights)
        ctx.stride = stride
        batch, heads, _, head_dim = x.shape
        sets, segments, kernel_size = weights.shape[1:]
        out = x.new_zeros(segments, batch, heads, head_dim).permute(1, 2, 0, 3)
        grouped, summed = x.unflatten(1, (sets, -1)), out.unflatten(1, (sets, -1))
        for tap in range(kernel_size):
            tokens = grouped[:, :, :, tap::stride][:, :, :, :segments]
            n = tokens.size(3)
            summed[:, :, :, :n].addcmul_(tokens, weights[:, :, None, :n, tap, None])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        x, weights = ctx.saved_tensors
        batch, heads, tokens, head_dim = x.shape
        sets, segments, kernel_size = weights.shape[1:]
        needs_x, needs_weights, _ = ctx.needs_input_grad
        grad = grad.unflatten(1, (sets, -1))
        grad_x = x.new_zeros(tokens, batch, heads, head_dim).permute(1, 2, 0, 3) if needs_x else None
        grad_weights = torch.zeros_like(weights) if needs_weights else None
        for tap in range(kernel_size):
            at = (slice(None), slice(None), slice(None), slice(tap, None, ctx.stride))
            taken = x.unflatten(1, (sets, -1))[at][:, :, :, :segments]
            n = taken.size(3)
            if needs_x:
                grad_tap = grad_x.unflatten(1, (sets, -1))[at][:, :, :, :n]
                grad_tap.addcmul_(grad[:, :, :, :n], weights[:, :, None, :n, tap, None])
            if needs_weights:
                product = (grad[:, :, :, :n] * taken).sum((2, 4))
                grad_weights[:, :, :n, tap] = product.sum_to_size(grad_weights[:, :, :n, tap].shape)
        return grad_x, grad_weights, None
