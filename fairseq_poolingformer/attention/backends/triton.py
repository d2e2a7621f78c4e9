"""Attention by Triton kernels on NVIDIA GPUs: one launch a stream forward, two or three backward, scores on the chip.

The kernels go by blocks under the band as the block backend's loops in Python do. They are in ``triton_kernels.py``,
what they do to a tile in ``triton_tiles.py``, and their arguments are put together in ``triton_launch.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..biases import RelativePositionBias
from ..call import Call
from .autograd import Kernels, TermGradients, run_streams
from .plan import Plan
from .streams import Source, Stream
from .triton_launch import (
    blocks_of,
    combine,
    dense,
    diagonal_spacing,
    distance_table,
    extra_arguments,
    key_arguments,
    keys_met,
    launch,
    num_parts,
    queries_met,
    query_arguments,
    score_arguments,
    strides,
)

try:
    import triton

    from . import triton_kernels as kernels
except ImportError:  # it comes with torch's CUDA builds for Linux, and with these alone
    triton = None

MAX_HEAD_DIM = 256


def why_not(call: Call) -> str | None:
    """It runs in 16 and 32 bits on NVIDIA GPUs, with the score terms that it has kernels for."""
    if triton is None:
        return "Triton is not installed"
    device, head_dim = call.query.device, call.query.size(-1)
    interpreted = not isinstance(kernels.forward, triton.JITFunction)
    if device.type != "cuda" and not interpreted:
        return f"it needs a CUDA device, query is on {device}"
    if device.type == "cuda" and (torch.version.hip or torch.cuda.get_device_capability(device) < (8, 0)):
        return "it needs an NVIDIA GPU of compute capability 8.0 or later"
    if call.query.dtype == torch.float64:
        return "it computes in float32, query is float64"
    if call.query.dtype == torch.bfloat16 and interpreted:
        return "Triton's interpreter does not multiply bfloat16"
    if head_dim > MAX_HEAD_DIM:
        return f"it takes head dimensions up to {MAX_HEAD_DIM}, query has {head_dim}"
    for term in call.score_terms:
        if not isinstance(term, RelativePositionBias):
            return f"it has no kernel for {type(term).__name__}"
        if term.table.requires_grad and torch.are_deterministic_algorithms_enabled():
            return "it sums a table's gradient in no fixed order, and deterministic algorithms are asked for"
    return None


def run(call: Call) -> Tensor:
    """See :func:`fairseq_poolingformer.attention.band_attention`."""
    return run_streams(call, Kernels(_forward, _backward))


def _forward(plan: Plan, stream: Stream) -> None:
    """Write ``stream.out`` and ``stream.lse``."""
    table = distance_table(plan, plan.terms)
    source, *extra = stream.sources
    blocks = blocks_of(stream, source, narrow=table is not None)
    parts = num_parts(stream.query, blocks.queries, keys_met(stream, source, blocks.queries) // blocks.keys)
    out, lse = stream.out[None], stream.lse[None]
    if parts > 1:
        out = torch.empty(parts, *stream.out.shape, dtype=torch.float32, device=out.device)
        lse = torch.empty(parts, *stream.lse.shape, dtype=torch.float32, device=lse.device)
    launch(
        kernels.forward,
        stream.query,
        blocks.queries,
        parts,
        blocks,
        out=out,
        stride_part=out.stride(0),
        **strides("o", "m", out[0]),
        lse=lse,
        stride_lpart=lse.stride(0),
        **strides("l", "m", lse[0]),
        **query_arguments(plan, stream, table),
        **key_arguments(plan, source, table),
        **extra_arguments(plan, extra, table, blocks),
        **score_arguments(plan, stream, source, table),
    )
    if parts > 1:
        combine(out, lse, stream)


def _backward(plan: Plan, stream: Stream, terms: TermGradients) -> None:
    """Write ``stream.grad_query`` and add to the gradients of the sources and of the terms' tensors."""
    with torch.enable_grad():
        table = distance_table(plan, [term for term, _ in terms.terms])
    grad_table = None
    if table is not None and table.requires_grad:
        grad_table = torch.zeros(table.shape, dtype=table.dtype, device=table.device)
    delta = _backward_queries(plan, stream, table, grad_table)
    for source in stream.sources:
        _backward_keys(plan, stream, source, table, delta)
    if grad_table is not None:
        places = [place for _, numbers in terms.terms for place in numbers]
        grads = torch.autograd.grad(table, [terms.leaves[place] for place in places], grad_table)
        for place, grad in zip(places, grads, strict=True):
            terms.sums[place] += grad


def _backward_queries(plan: Plan, stream: Stream, table: Tensor | None, grad_table: Tensor | None) -> Tensor:
    """Write ``stream.grad_query``, add to ``grad_table``; returns the rows' sums of out · grad_out (B, H, U)."""
    source, *extra = stream.sources
    blocks = blocks_of(stream, source, narrow=table is not None)
    if grad_table is not None:
        blocks = blocks._replace(queries=min(blocks.queries, 32))
    parts = num_parts(stream.query, blocks.queries, keys_met(stream, source, blocks.queries) // blocks.keys)
    grad_query = stream.grad_query[None]
    if parts > 1:
        grad_query = torch.empty(parts, *stream.query.shape, dtype=torch.float32, device=grad_query.device)
    (grad_out,) = dense(stream.grad_out)
    delta = torch.empty(stream.lse.shape, dtype=torch.float32, device=grad_out.device)
    spacing = diagonal_spacing(plan, stream)
    launch(
        kernels.backward_queries,
        stream.query,
        blocks.queries,
        parts,
        blocks,
        out=stream.out,
        **strides("o", "m", stream.out),
        lse=stream.lse,
        **strides("l", "m", stream.lse),
        grad_out=grad_out,
        **strides("g", "m", grad_out),
        delta=delta,
        grad_query=grad_query,
        stride_part=grad_query.stride(0),
        **strides("dq", "m", grad_query[0]),
        grad_table=None if grad_table is None else grad_table[stream.heads],
        spacing=spacing or 0,
        DIAGONAL=spacing is not None,
        **query_arguments(plan, stream, table),
        **key_arguments(plan, source, table),
        **extra_arguments(plan, extra, table, blocks),
        **score_arguments(plan, stream, source, table),
    )
    if parts > 1:
        stream.grad_query.copy_(grad_query.sum(0))
    return delta


def _backward_keys(plan: Plan, stream: Stream, source: Source, table: Tensor | None, delta: Tensor) -> None:
    """Add to ``source.grad_key`` and ``source.grad_value``."""
    shared = stream.number > 0  # streams share keys, but before the first the gradients are zero
    blocks = blocks_of(stream, source, narrow=shared or table is not None)
    parts = num_parts(source.key, blocks.keys, queries_met(stream, source, blocks.keys) // blocks.queries)
    grad_key, grad_value = source.grad_key[None], source.grad_value[None]
    if parts > 1:
        shape = (2, parts, *source.key.shape)
        grad_key, grad_value = torch.empty(shape, dtype=torch.float32, device=grad_key.device)
    (grad_out,) = dense(stream.grad_out)
    launch(
        kernels.backward_keys,
        source.key,
        blocks.keys,
        parts,
        blocks,
        grad_out=grad_out,
        **strides("g", "m", grad_out),
        lse=stream.lse,
        **strides("l", "m", stream.lse),
        delta=delta,
        grad_key=grad_key,
        grad_value=grad_value,
        stride_part=grad_key.stride(0),
        **strides("dk", "n", grad_key[0]),
        ADD=parts == 1 and shared,
        **query_arguments(plan, stream, table),
        **key_arguments(plan, source, table),
        **score_arguments(plan, stream, source, table),
    )
    if parts > 1:
        source.grad_key.add_(grad_key.sum(0))
        source.grad_value.add_(grad_value.sum(0))
