"""Attention and its pools in graphs of torch.compile: ``torch.library`` operators around the backends' functions.

They take tensors and numbers alone, and the number of global tokens is the size of a tensor. Eager calls take an
autograd.Function, which costs the host less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends import BACKENDS
from fairseq_poolingformer.attention.backends.choice import pick
from fairseq_poolingformer.attention.backends.operation import Operation
from fairseq_poolingformer.attention.backends.plan import empty_like, softmax_dtype
from fairseq_poolingformer.attention.backends.triton import backend as triton_backend
from fairseq_poolingformer.attention.call import Call, ScoreTerm
from fairseq_poolingformer.attention.dropout import draw_seed
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.masks import Masks
from fairseq_poolingformer.attention.patterns import Pooling, Window
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens
from fairseq_poolingformer.choices import ALIGNMENTS

TRACEABLE = ("reference", "sdpa")  # backends of plain tensor operations


def takes(score_terms: Sequence[ScoreTerm]) -> bool:
    """Whether graphs hold calls with these terms: those that one softmax needs itself."""
    return all(isinstance(term, UnseenTokens) for term in score_terms)


def run(call: Call, backend: str | None) -> Any:
    """See :func:`fairseq_poolingformer.attention.band_attention`."""
    if backend in TRACEABLE:
        return BACKENDS[pick(call, backend)].run(call)
    tokens, pooling, terms = call.masks.global_keys, call.pooling, call.score_terms
    slots, num_first = None, 0
    if tokens is not None and tokens.known:
        num_first = tokens.num_first
        slots = None if num_first else tokens.slots
    unseen: Any = terms[0] if terms else None
    out, lse = _attention(
        call.query,
        call.key,
        call.value,
        None if tokens is None else tokens.mask,
        slots,
        num_first,
        call.masks.global_queries,
        call.masks.padding,
        None if unseen is None else unseen.counted,
        draw_seed(call.query.device) if call.dropout_p else None,
        [call.window.left, call.window.right, *_dilations(call.window)],
        [] if pooling is None else [pooling.kernel_size, pooling.stride, ALIGNMENTS.index(pooling.alignment)],
        [] if unseen is None else [unseen.window.left, unseen.window.right, unseen.pooling.kernel_size],
        call.query_offset,
        call.scale,
        call.dropout_p,
        backend or "",
    )
    return (out, lse * math.log(2)) if call.return_lse else out


def _dilations(window: Window) -> tuple[int, ...]:
    return window.dilation if isinstance(window.dilation, tuple) else (window.dilation,)


def _operation(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    global_mask: Tensor | None,
    global_slots: Tensor | None,
    num_first: int,
    global_queries: bool,
    padding: Tensor | None,
    counted: Tensor | None,
    seed: Tensor | None,
    window: list[int],
    pooling: list[int],
    unseen: list[int],
    query_offset: int,
    scale: float,
    dropout_p: float,
    backend: str,
) -> tuple[Operation, Any]:
    """The backend's functions, and their plan, query, key and value."""
    tokens = None if global_mask is None else GlobalTokens.of_slots(global_mask, global_slots, num_first)
    masks = Masks(tokens, padding)
    masks.global_queries = global_queries
    left, right, *dilations = window
    terms: tuple[ScoreTerm, ...] = ()
    if counted is not None:
        near_left, near_right, size = unseen
        terms = (UnseenTokens(Window(near_left, near_right), Pooling(size, size), counted),)
    call = Call.of(
        query,
        key,
        value,
        window=Window(left, right, dilations[0] if len(dilations) == 1 else tuple(dilations)),
        pooling=Pooling(pooling[0], pooling[1], ALIGNMENTS[pooling[2]]) if pooling else None,
        masks=masks,
        score_terms=terms,
        query_offset=query_offset,
        dropout_p=dropout_p,
        scale=scale,
        seed=seed,
    )
    module = BACKENDS[pick(call, backend or None)]
    return module.OPERATION, module.inputs(call)


INPUTS = """
    Tensor query, Tensor key, Tensor value, Tensor? global_mask, Tensor? global_slots, int num_first,
    bool global_queries, Tensor? padding, Tensor? counted, Tensor? seed, int[] window, int[] pooling, int[] unseen,
    int query_offset, float scale, float dropout_p, str backend
"""
OF_BACKWARD = f"({INPUTS}, Tensor out, Tensor lse, Tensor grad_out, Tensor? grad_lse) -> (Tensor, Tensor, Tensor)"


@torch.library.custom_op("fairseq_poolingformer::attention", mutates_args=(), schema=f"({INPUTS}) -> (Tensor, Tensor)")
def _attention(*inputs: Any) -> tuple[Tensor, Tensor]:
    """The output, and (B, H, T) the logarithms to base 2 of the softmax's denominators."""
    operation, (plan, *tensors) = _operation(*inputs)
    out, lse, global_lse = operation.forward(plan, *tensors)
    return out, operation.all_rows(plan, lse, global_lse)


@torch.library.custom_op("fairseq_poolingformer::attention_backward", mutates_args=(), schema=OF_BACKWARD)
def _attention_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value."""
    *inputs, out, lse, grad_out, grad_lse = arguments
    operation, (plan, *tensors) = _operation(*inputs)
    lse, global_lse = operation.of_groups(plan, lse)
    grad_lse = None if grad_lse is None else grad_lse / math.log(2)  # of the natural logarithms
    grads: Any = operation.backward(plan, (*tensors, out, lse, global_lse), (), grad_out, grad_lse)
    return grads


@_attention.register_fake
def _(query: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return empty_like(query), query.new_empty(query.shape[:3], dtype=softmax_dtype(query))


@_attention_backward.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return empty_like(query), empty_like(key), empty_like(value)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.places = [place for place, x in enumerate(inputs) if isinstance(x, Tensor)]
    ctx.others = [None if isinstance(x, Tensor) else x for x in inputs]
    ctx.save_for_backward(*(inputs[place] for place in ctx.places), *output)


def _gradients(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Any, ...]:
    *tensors, out, lse = ctx.saved_tensors
    inputs = list(ctx.others)
    for place, x in zip(ctx.places, tensors, strict=True):
        inputs[place] = x
    grad_out = torch.zeros_like(out) if grad_out is None else grad_out
    return *_attention_backward(*inputs, out, lse, grad_out, grad_lse), *[None] * (len(inputs) - 3)


_attention.register_autograd(_gradients, setup_context=_save)


def pooled(numbers: tuple[Any, ...], key: Tensor, value: Any, weight: Any, bias: Any, real: tuple[Any, ...]) -> Tensor:
    """:class:`Pools` of Triton kernels."""
    return _pools(key, value, weight, bias, *real, *numbers)[0]


REAL, NUMBERS = "Tensor? hidden, Tensor centre, Tensor count", "int kernel_size, int stride, bool of_mean, int sources"
POOL_INPUTS = f"(Tensor key, Tensor? value, Tensor? weight, Tensor? bias, {REAL}, {NUMBERS}) -> (Tensor, Tensor)"
OF_POOL_BACKWARD = (
    f"(Tensor key, Tensor? value, Tensor? weight, {REAL}, Tensor delta, Tensor grad, {NUMBERS}) -> Tensor[]"
)


@torch.library.custom_op("fairseq_poolingformer::pools", mutates_args=(), schema=POOL_INPUTS)
def _pools(key: Tensor, value: Any, weight: Any, bias: Any, *rest: Any) -> tuple[Tensor, Tensor]:
    """``out`` and ``delta`` of :func:`pools`, without ``weight`` no number."""
    out, delta = triton_backend.pooling.pools(rest[3:], key, value, weight, bias, rest[:3])
    return out, out.new_empty(0) if delta is None else delta


@_pools.register_fake
def _(key: Tensor, value: Any, weight: Tensor | None, bias: Any, hidden: Any, centre: Tensor, *rest: Any):
    (batch, heads, _, head_dim), num_pools, (_, kernel_size, *_, sources) = key.shape, centre.size(1), rest
    out = key.new_empty(sources, batch, num_pools, heads, head_dim).transpose(2, 3)
    if weight is None:
        return out, key.new_empty(0)
    return out, key.new_empty(
        sources, batch, weight.size(1) // kernel_size, num_pools, kernel_size, dtype=torch.float32
    )


@torch.library.custom_op("fairseq_poolingformer::pools_backward", mutates_args=(), schema=OF_POOL_BACKWARD)
def _pools_backward(key: Tensor, value: Any, weight: Any, *rest: Any) -> list[Tensor]:
    """:func:`gradients`, those that there are."""
    real, (delta, grad), numbers = rest[:3], rest[3:5], rest[5:]
    grads = triton_backend.pooling.gradients(numbers, key, value, weight, real, delta, grad)
    return [x.contiguous() if n > 1 else x for n, x in enumerate(grads) if x is not None]


@_pools_backward.register_fake
def _(key: Tensor, value: Tensor | None, weight: Tensor | None, *_: Any) -> list[Tensor]:
    of_weight = [] if weight is None else [weight.new_empty(weight.shape), weight.new_empty(weight.shape[:2])]
    return [empty_like(x) for x in (key, value) if x is not None] + of_weight


def _save_pools(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    key, value, weight, bias, *real, kernel_size, stride, of_mean, sources = inputs
    ctx.save_for_backward(key, value, weight, *real, output[1])
    ctx.has_bias, ctx.numbers = bias is not None, (kernel_size, stride, of_mean, sources)


def _pool_gradients(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    key, value, weight, *rest = ctx.saved_tensors
    grad_key, *grads = _pools_backward(key, value, weight, *rest, grad, *ctx.numbers)
    grad_value = None if value is None else grads.pop(0)
    grad_weight, grad_bias = grads or (None, None)
    return grad_key, grad_value, grad_weight, grad_bias if ctx.has_bias else None, *[None] * 7


_pools.register_autograd(_pool_gradients, setup_context=_save_pools)
