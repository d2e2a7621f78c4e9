"""Attention over all keys, merged from attention over disjoint sets of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def merge_softmax(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """One softmax over the keys of all parts: ``lse = log Σ exp(lse_p)``, ``out = Σ exp(lse_p − lse)·out_p``.

    Args:
        parts: of each, its output (…, D) and the natural logarithm of its softmax's denominator (…); -inf where a query
            sees none of the part's keys, and its output is then ignored.

    Returns:
        The output (…, D) and the logarithm (…), in float32, or in float64 where a part is; zeros and -inf where a query
        sees nothing.
    """
    dtype = torch.promote_types(parts[0][0].dtype, torch.float32)
    logs = torch.stack([lse.to(dtype) for _, lse in parts])
    blind = (logs == -torch.inf).all(0)
    lse = logs.masked_fill(blind, 0.0).logsumexp(0)  # finite, for the gradients of -inf are NaN
    weights = (logs - lse).exp().unsqueeze(-1)
    outs = [out.to(dtype).masked_fill(weight == 0.0, 0.0) for (out, _), weight in zip(parts, weights, strict=True)]
    merged = torch.stack([weight * out for out, weight in zip(outs, weights, strict=True)]).sum(0)
    return merged, lse.masked_fill(blind, -torch.inf)
