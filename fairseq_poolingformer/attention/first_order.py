"""Autograd functions whose gradients cannot be differentiated again raise where that is tried."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate ``backward(ctx, saved, *grads)``, ``saved`` being ``ctx.saved_tensors``: second derivatives raise.

    With ``create_graph=True`` its results depend on ``saved`` and ``grads``. Those of torch's ``once_differentiable``
    depend on ``grads`` alone, so that a second derivative lacks what reaches the inputs, without an error.
    """
    name = backward.__qualname__.partition(".")[0]

    @functools.wraps(backward)
    def with_refusal(ctx: Any, *grads: Any) -> Any:
        saved = ctx.saved_tensors  # once, as recomputed activations are given out once
        with torch.no_grad():
            results = backward(ctx, saved, *grads)
        if not torch.is_grad_enabled():
            return results
        return _Refusal.apply(name, results, *grads, *saved)

    return with_refusal


class _Refusal(torch.autograd.Function):
    """``results``, as a function of ``inputs`` that has no derivative."""

    @staticmethod
    def forward(ctx, name: str, results: Any, *inputs: Any) -> Any:
        ctx.name = name
        return results

    @staticmethod
    def backward(ctx, *grads: Any) -> Any:
        raise RuntimeError(
            f"no second derivatives: {ctx.name} computes its gradient outside of autograd; "
            "band_attention has them with backend='reference', and where the window holds the whole text with "
            "backend='sdpa' within torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
        )
