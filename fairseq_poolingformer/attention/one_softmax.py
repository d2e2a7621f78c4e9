"""One softmax over tokens and pools: by one kernel, or by two calls of the operator whose results are merged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_exporting

from fairseq_poolingformer.attention.backends import reference, self_check
from fairseq_poolingformer.attention.backends.triton import backend as triton_backend
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.masks import Masks
from fairseq_poolingformer.attention.patterns import Pooling, Window
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens


def of_both(
    attend: Callable[..., Any], query: Tensor, tokens: dict[str, Any], pools: Callable[[], dict[str, Any]]
) -> Tensor:
    """(B, H, T, D) by two calls, each run by ``attend``: the pools' share of the softmax goes to their values.

    ``tokens`` are the arguments of level one's call, ``pools`` makes those of level two's.
    """
    y, lse = attend("one", query, **tokens, return_lse=True)
    pooled, pools_lse = attend("two", query, **pools(), return_lse=True)
    return torch.lerp(y, pooled, share_of_pools(lse, pools_lse, tokens["masks"]).to(y.dtype))


def share_of_pools(lse: Tensor, pools_lse: Tensor, masks: Masks) -> Tensor:
    """(B, H, T, 1) the pools' share of one softmax, from the logarithms (B, H, T) of both parts of its denominator."""
    if masks.global_mask is not None:  # global tokens see all tokens themselves
        pools_lse = pools_lse.masked_fill(masks.global_mask[:, None], -torch.inf)
    # e^pools / (e^tokens + e^pools); NaN where a query sees nothing at all, and both outputs are zero
    sees_nothing = (pools_lse == -torch.inf) & (lse == -torch.inf)
    return (pools_lse - lse).masked_fill(sees_nothing, 0.0).sigmoid().unsqueeze(-1)


def by_one_kernel(
    query: Tensor, tokens: dict[str, Any], pools: Callable[[], dict[str, Any]], dropout_p: float, backend: str | None
) -> Tensor | None:
    """(B, H, T, D) on a GPU; None where there is no kernel for it. Arguments as :func:`of_both`'s."""
    if backend not in (None, "triton") or is_exporting() or torch.compiler.is_compiling():
        return None
    if tokens["score_terms"] or not triton_backend.runs_on(query):  # before pools are made, which are made once
        return None
    calls = Call.of(query, **tokens, dropout_p=dropout_p), Call.of(query, **pools(), dropout_p=dropout_p)
    if triton_backend.why_not_both(*calls) is not None or not _passes_self_check(*calls):
        return None
    return triton_backend.run_both(*calls)


def _passes_self_check(tokens: Call, pools: Call) -> bool:
    """Whether a small problem of the calls' variant has the reference's result; always on a CPU."""
    query, masks = tokens.query, tokens.masks
    return not query.is_cuda or self_check.passes(
        *("the kernel of one softmax", _difference, query.dtype, query.device, query.size(3), pools.pooling),
        self_check.reduced_products(query.dtype),
        *(masks.padding is not None and "padding", masks.global_keys is not None and "global tokens"),
        *(tokens.dropout_p > 0.0 and "dropout", tokens.window.right != 0 and "both sides"),
    )


def _difference(
    dtype: torch.dtype, device: torch.device, head_dim: int, pooling: Pooling, products: str | bool, *flags: Any
) -> str | None:
    return self_check.excess(kernel_error(dtype, device, head_dim, pooling, *map(bool, flags)), dtype)


def kernel_error(
    dtype: torch.dtype,
    device: torch.device,
    head_dim: int,
    pooling: Pooling,
    padded: bool = True,
    with_globals: bool = True,
    dropout: bool = False,
    both_sides: bool = True,
    *,
    tokens: int = 700,
) -> float:
    """The greatest error of the kernel, relative to the greatest number of each result; with dropout of its identities.

    Outputs and gradients beside the reference in float64. Dropout's masks are the kernel's own: the output is linear in
    the values, and Σ q·∂q = Σ k·∂k, which holds where all passes draw the same mask.
    """
    generator, size = torch.Generator().manual_seed(0), pooling.kernel_size
    num_pools, place = pooling.num_pools(tokens), torch.arange(tokens, device=device)
    shapes = [(2, 2, count, head_dim) for count in (tokens, tokens, tokens, num_pools, num_pools)]
    inputs = [torch.randn(shape, generator=generator).to(device, dtype).requires_grad_() for shape in shapes]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    is_global = torch.stack([place == 0, place % 300 == 7]) if with_globals else None
    masks = Masks(is_global, torch.stack([place < 0, place >= tokens * 5 // 7]) if padded else None)
    shown = min(128, tokens * 2 // 3)  # in 700 tokens, so that kernels enter their loops without masks
    near, far = (Window(reach, reach if both_sides else 0) for reach in (shown, shown + 90 * size))
    unseen = UnseenTokens.of(masks, near, pooling, (2, tokens), device)
    calls = [
        (
            Call.of(*x[:3], window=near, masks=masks, return_lse=True),
            Call.of(
                x[0], *x[3:], window=far, pooling=pooling, masks=unseen.masks, score_terms=(unseen,), return_lse=True
            ),
        )
        for x in (inputs, exact)
    ]
    p = 0.3 if dropout else 0.0
    out = triton_backend.run_both(*(replace(call, dropout_p=p) for call in calls[0]))
    grad = torch.randn(out.shape, generator=generator).to(out)
    results = [out, *torch.autograd.grad(out, inputs, grad)]
    if dropout:
        query, key, value, pool_key, pool_value, y, *grads = (x.detach().double() for x in (*inputs, *results))
        linear = (value * grads[2]).sum() + (pool_value * grads[4]).sum() - (y * grad).sum()
        scores = (key * grads[1]).sum() + (pool_key * grads[3]).sum() - (query * grads[0]).sum()
        errors = linear / (y * grad).norm(), scores / (query * grads[0]).norm()
        return torch.stack(errors).abs().max().item() / 8
    (y, lse), (pooled, pools_lse) = (reference.run(call) for call in calls[1])
    y = torch.lerp(y, pooled, share_of_pools(lse, pools_lse, masks))
    expected = [y, *torch.autograd.grad(y, exact, grad.double())]
    return self_check.largest_error(results, expected)
