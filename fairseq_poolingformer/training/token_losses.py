"""Cross entropy of a linear layer over a large vocabulary, slice by slice, without a float32 copy of the logits.

This module needs torch alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention.first_order import first_order

LOGITS_AT_A_TIME = 2**22  # 16 MiB in float32: large enough for a GPU, and a CPU can reuse so small a block of memory
KEPT_LOGITS = 2**26  # 128 MiB in half precision: all logits of 1,300 tokens with BART's vocabulary


def linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    kept_logits: int = KEPT_LOGITS,
) -> tuple[Tensor, Tensor]:
    """Sum the label-smoothed and the plain cross entropy of all tokens, in nats.

    With the logits z = W x + b of a token and V symbols, ``nll = log Σ_v exp z_v − z_target`` and
    ``loss = (1 − ε − ε/(V−1)) · nll + ε/(V−1) · Σ_v (log Σ exp z − z_v)``, which is fairseq's label smoothing.

    The function computes the logits of a slice of the vocabulary at a time. It keeps the first ``kept_logits`` of them
    for the backward pass and computes the others again there. The backward pass computes the gradients, so that a loss
    scale reaches them before they are rounded to float16. Logits have the features' dtype and must be finite; sums are
    in float32 (float64 for float64). Both results have gradients. Under autocast, the matrix products are in its dtype.
    """
    _check(features, weight, bias, target, label_smoothing, kept_logits)
    if torch.is_autocast_enabled(features.device.type):
        dtype = torch.get_autocast_dtype(features.device.type)
        features, weight, bias = (x if x is None else x.to(dtype) for x in (features, weight, bias))
    kept_logits = kept_logits if torch.is_grad_enabled() else 0
    nll, smooth = _TokenLosses.apply(features, weight, bias, target, label_smoothing > 0, kept_logits)
    counts = target.ne(ignore_index)  # selecting these rows beforehand would wait for the device
    nll, smooth = nll.where(counts, 0).sum(), smooth.where(counts, 0).sum()
    share = label_smoothing / (weight.size(0) - 1)
    return (1 - label_smoothing - share) * nll + share * smooth, nll


def linear_argmax(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The likeliest symbol of every token, (N,); the first of several."""
    best = features.new_full((features.size(0),), -torch.inf)
    symbol = torch.zeros(features.size(0), dtype=torch.long, device=features.device)
    for part in _slices(weight.size(0), features.size(0)):
        top, index = _logits(features, weight, bias, part).max(-1)
        better = top > best
        best = torch.where(better, top, best)
        symbol = torch.where(better, index + part.start, symbol)
    return symbol


def _check(
    features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, label_smoothing: float, kept_logits: int
) -> None:
    if features.dim() != 2 or target.shape != features.shape[:1]:
        raise ValueError(f"features must be (N, C) and target (N,), got {(*features.shape,)} and {(*target.shape,)}")
    if weight.dim() != 2 or weight.size(1) != features.size(1) or weight.size(0) < 2:
        raise ValueError(f"weight must be (V, {features.size(1)}) with V ≥ 2, got {(*weight.shape,)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must be ({weight.size(0)},), got {(*bias.shape,)}")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must be in [0, 1), got {label_smoothing}")
    if kept_logits < 0:
        raise ValueError(f"kept_logits must be 0 or more, got {kept_logits}")


def _slices(symbols: int, rows: int) -> Iterator[slice]:
    """Slices of the vocabulary, as even as possible."""
    length = max(1, LOGITS_AT_A_TIME // max(rows, 1))
    length = -(-symbols // -(-symbols // length))
    for start in range(0, symbols, length):
        yield slice(start, min(start + length, symbols))


def _logits(features: Tensor, weight: Tensor, bias: Tensor | None, part: slice) -> Tensor:
    return F.linear(features, weight[part], None if bias is None else bias[part])


def _in_slice(target: Tensor, part: slice) -> tuple[Tensor, Tensor]:
    """Columns (N, 1) of the targets in a slice, and (N,) where that is so; other rows have some column."""
    column = (target - part.start).clamp(0, part.stop - part.start - 1)
    return column[:, None], (target >= part.start) & (target < part.stop)


class _TokenLosses(torch.autograd.Function):
    """(N,) the negative log-likelihood of the target, and (N,) the sum of every symbol's (0 unless smoothed)."""

    @staticmethod
    def forward(ctx, features, weight, bias, target, smoothed, kept_logits):
        dtype = torch.promote_types(features.dtype, torch.float32)
        log_norm = features.new_full(target.shape, -torch.inf, dtype=dtype)
        target_logit, logit_sum = torch.zeros_like(log_norm), torch.zeros_like(log_norm)
        first_logits = []
        for part in _slices(weight.size(0), features.size(0)):
            logits = _logits(features, weight, bias, part)
            if part.stop * features.size(0) <= kept_logits:
                first_logits.append(logits)
            # torch.logsumexp is ten times slower than log_softmax on a CPU
            log_probs = logits.log_softmax(-1, dtype=dtype)
            log_norm = torch.logaddexp(log_norm, logits[:, 0] - log_probs[:, 0])
            column, inside = _in_slice(target, part)
            target_logit += logits.gather(1, column).squeeze(1).to(dtype).where(inside, 0)
            if smoothed:
                logit_sum += logits.sum(-1, dtype=dtype)
        ctx.smoothed = smoothed
        ctx.save_for_backward(features, weight, bias, target, log_norm, *first_logits)
        smooth = weight.size(0) * log_norm - logit_sum if smoothed else torch.zeros_like(log_norm)
        return log_norm - target_logit, smooth

    @staticmethod
    @first_order
    def backward(ctx, saved, grad_nll, grad_smooth):
        features, weight, bias, target, log_norm, *first_logits = saved
        grad_features = torch.zeros_like(features, dtype=log_norm.dtype) if ctx.needs_input_grad[0] else None
        grad_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        grad_bias = torch.empty_like(bias) if ctx.needs_input_grad[2] else None
        total = (grad_nll + weight.size(0) * grad_smooth)[:, None]
        for number, part in enumerate(_slices(weight.size(0), features.size(0))):
            logits = first_logits[number] if number < len(first_logits) else _logits(features, weight, bias, part)
            grad = (logits - log_norm[:, None]).exp_().mul_(total)
            if ctx.smoothed:
                grad -= grad_smooth[:, None]
            column, inside = _in_slice(target, part)
            grad.scatter_add_(1, column, (-grad_nll * inside)[:, None])
            grad = grad.to(features.dtype)
            if grad_features is not None:
                grad_features += grad @ weight[part]
            if grad_weight is not None:
                torch.mm(grad.t(), features, out=grad_weight[part])
            if grad_bias is not None:
                grad_bias[part] = grad.sum(0)
        if grad_features is not None:
            grad_features = grad_features.to(features.dtype)
        return grad_features, grad_weight, grad_bias, None, None, None
