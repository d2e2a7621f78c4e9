"""The operator as an autograd function over streams of torch operations, and the sums of score terms' gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..biases import ScoreTerm, term_tensors, with_tensors
from ..call import Call
from .plan import Buffers, Plan, global_stream, local_streams, softmax_dtype, zeros_like
from .streams import Stream


class Kernels(NamedTuple):
    """How one stream is computed.

    Args:
        forward: writes ``stream.out`` and ``stream.lse``.
        backward: writes ``stream.grad_query``, adds to the gradients of the stream's sources and of the terms' tensors.
    """

    forward: Callable[[Plan, Stream], None]
    backward: Callable[[Plan, Stream, TermGradients], None]


class TermGradients:
    """The score terms over detached tensors, and the sums of these tensors' gradients.

    Args:
        terms: the call's score terms.
        tensors: their tensors, in order.
        wanted: which of those need gradients.
    """

    def __init__(self, terms: tuple[ScoreTerm, ...], tensors: list[Tensor], wanted: tuple[bool, ...]) -> None:
        self.leaves = [t.detach().requires_grad_(want) for t, want in zip(tensors, wanted, strict=True)]
        self.sums = [torch.zeros_like(leaf) if leaf.requires_grad else None for leaf in self.leaves]
        self.terms: list[tuple[ScoreTerm, list[int]]] = []  # with the places in ``sums`` that it adds to
        first = 0
        for term in terms:
            names = list(term_tensors(term))
            numbers = range(first, first + len(names))
            leaves = {name: self.leaves[n] for name, n in zip(names, numbers, strict=True)}
            self.terms.append((with_tensors(term, leaves), [n for n in numbers if wanted[n]]))
            first = numbers.stop


def run_streams(call: Call, kernels: Kernels) -> Tensor:
    """See :func:`fairseq_poolingformer.attention.band_attention`."""
    tensors = [tensor for term in call.score_terms for tensor in term_tensors(term).values()]
    return _StreamAttention.apply(kernels, Plan.of(call), call.query, call.key, call.value, *tensors)


class _StreamAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, kernels: Kernels, plan: Plan, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor):
        batch, heads, queries, _ = query.shape
        out = zeros_like(query)
        lse = query.new_full((batch, heads, queries), torch.inf, dtype=softmax_dtype(query))
        slots = plan.global_queries.num_slots if plan.global_queries else 0
        global_lse = lse.new_full((batch, heads, slots), torch.inf)
        buffers = Buffers(query, key, value, out, lse, global_lse)
        with torch.autocast(query.device.type, enabled=False):
            for stream in local_streams(plan, buffers):
                kernels.forward(plan, stream)
            if plan.global_queries:
                stream = global_stream(plan, buffers)
                kernels.forward(plan, stream)
                plan.global_queries.put(out, stream.out)
                # the window had its say on these rows too: without weight in the backward pass it is taken back
                lse[plan.global_queries.row, :, plan.global_queries.token] = torch.inf
        ctx.kernels, ctx.plan = kernels, plan
        ctx.save_for_backward(query, key, value, out, lse, global_lse, *tensors)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out: Tensor):
        plan = ctx.plan
        query, key, value, out, lse, global_lse, *tensors = ctx.saved_tensors
        dtype = softmax_dtype(query)
        grad_query = zeros_like(query, dtype if plan.global_keys else None)  # a sum over sources
        grad_key, grad_value = zeros_like(key, dtype), zeros_like(value, dtype)
        buffers = Buffers(query, key, value, out, lse, global_lse, grad_out, grad_query, grad_key, grad_value)
        terms = TermGradients(plan.terms, tensors, ctx.needs_input_grad[5:])
        with torch.autocast(query.device.type, enabled=False):
            for stream in local_streams(plan, buffers):
                ctx.kernels.backward(plan, stream, terms)
                if plan.global_keys:
                    heads, extra = stream.heads, stream.sources[1]
                    plan.global_keys.add(grad_key[:, heads], extra.grad_key)
                    plan.global_keys.add(grad_value[:, heads], extra.grad_value)
            if plan.global_queries:
                stream = global_stream(plan, buffers)
                ctx.kernels.backward(plan, stream, terms)
                plan.global_queries.put(grad_query, stream.grad_query)
        grads = grad_query.to(query.dtype), grad_key.to(key.dtype), grad_value.to(value.dtype)
        return None, None, *grads, *terms.sums
