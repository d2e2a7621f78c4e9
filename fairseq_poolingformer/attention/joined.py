"""Projections and pools of keys, values and queries at once where kernels run: a GPU waits for its launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_exporting

from fairseq_poolingformer.attention.backends.triton.backend import runs_on
from fairseq_poolingformer.attention.masks import Masks
from fairseq_poolingformer.attention.patterns import Pooling
from fairseq_poolingformer.attention.plain_linear import are_alike
from fairseq_poolingformer.attention.pooling import has_kernels, pool, pool_pair


def projected(x: Tensor, modules: list[Any], more: list[Any]) -> Sequence[Tensor]:
    """``x`` (…, C) through each of ``modules``; where one product does that, also through ``more`` if it can."""
    if is_exporting() or not runs_on(x) or not are_alike(modules):
        return [module(x) for module in modules]
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))  # which is saved for the backward pass
    modules = modules + more if more and are_alike(modules + more) else modules
    biases = [] if modules[0].bias is None else [module.bias for module in modules]
    run = _OneProduct.apply if torch.is_grad_enabled() else _one_product
    return run(x, len(modules), *[module.weight for module in modules], *biases)


def _one_product(x: Tensor, count: int, *parameters: Tensor) -> tuple[Tensor, ...]:
    """``x`` (…, C) through linear layers, given by ``count`` weights and their biases."""
    joined, end = torch._utils._flatten_dense_tensors(parameters), count * parameters[0].numel()
    bias = joined[end:] if len(parameters) > count else None
    return F.linear(x, joined[:end].view(-1, x.size(-1)), bias).chunk(count, -1)


class _OneProduct(torch.autograd.Function):
    """:func:`_one_product`, which saves no joined weights for the backward pass."""

    @staticmethod
    def forward(ctx, x: Tensor, count: int, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, *parameters)
        ctx.count = count
        return _one_product(x, count, *parameters)

    @staticmethod
    def backward(ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:  # which autograd can differentiate
        (x, *parameters), count = ctx.saved_tensors, ctx.count
        needs_x, _, *needs = ctx.needs_input_grad
        grad, dtype = torch.cat(grads, -1).flatten(0, -2), parameters[0].dtype
        results: list[Any] = [None] * len(parameters)
        grad_x = grad.mm(torch.cat(parameters[:count]).to(grad.dtype)).view(x.shape) if needs_x else None
        if any(needs[:count]):
            results[:count] = grad.t().mm(x.flatten(0, -2)).to(dtype).chunk(count)
        if any(needs[count:]):
            results[count:] = grad.sum(0).to(dtype).chunk(count)
        return grad_x, None, *results


def pool_both(
    key: Tensor, value: Tensor, pooling: Pooling, kind: str, masks: Masks, weights: Sequence[Tensor | None]
) -> tuple[Tensor, ...]:
    """Pooled keys and values (B, H, P, D), of which ``weights`` are W_p; where kernels run, by one launch."""
    if not has_kernels(key, pooling, kind):
        return tuple(pool(x, pooling, kind, masks, w) for x, w in zip((key, value), weights, strict=True))
    weight = None if weights[0] is None else torch.stack(weights)  # type: ignore
    return pool_pair(key, value, pooling, kind, masks, (weight, None)).unbind()


def pool_projected_both(
    x: Tensor,
    projections: Sequence[Any],
    num_heads: int,
    pooling: Pooling,
    kind: str,
    masks: Masks,
    weights: Sequence[Tensor | None],
) -> tuple[Tensor, ...] | None:
    """Pooled keys and values of ``x`` (B, 1, T, C), which ``projections`` project after pooling.

    It is :meth:`TwoLevelAttention._pool_projected`, both stacked; None where no kernels run.
    """
    if not are_alike(projections) or not has_kernels(x, pooling, kind):
        return None
    k_proj, v_proj = projections
    weight, pool_weight, pool_bias = torch.stack([k_proj.weight, v_proj.weight]), None, None
    bias = None if k_proj.bias is None else torch.stack([k_proj.bias, v_proj.bias])
    if weights[0] is not None:
        stacked = torch.stack(weights)  # type: ignore
        pool_weight = stacked.bmm(weight)  # which takes the host a third of the time of @
        pool_bias = None if bias is None else stacked.bmm(bias[..., None]).squeeze(-1)
    value = None if pool_weight is None else x  # with mean pooling, keys and values share one pooled input
    pooled = pool_pair(x, value, pooling, kind, masks, (pool_weight, pool_bias))
    shape, pooled = pooled.shape[1:4:2], pooled.flatten(1, 3).expand(2, -1, -1)
    if bias is None:
        both = pooled.bmm(weight.transpose(1, 2))
    else:
        both = torch.baddbmm(bias[:, None], pooled, weight.transpose(1, 2))
    # view() and unbind() at a third of the host time of unflatten() and of unpacking
    return both.view(2, *shape, num_heads, -1).transpose(2, 3).unbind()
