"""Attention by Triton kernels on NVIDIA GPUs: one launch a lane forward, two backward; scores stay on the chip.

The kernels go by blocks under the band as the block backend's loops in Python do. They are in ``triton_kernels.py``,
what they do to a tile in ``triton_tiles.py``, and their arguments are put together in ``triton_launch.py``. Global
tokens are rows that the kernels find themselves: an operation of torch costs the host more time than the device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..biases import RelativePositionBias, term_tensors
from ..call import Call
from .autograd import TermGradients
from .plan import Plan, zeros_like
from .triton_launch import (
    SMALL_BLOCK,
    Stream,
    Tokens,
    binary_scores,
    blocks_of,
    dense,
    distance_table,
    empty_like,
    extra_line,
    global_keys_of,
    global_stream,
    head_sizes,
    key_line,
    keys_met,
    launch,
    local_streams,
    num_parts,
    num_programs,
    queries_met,
    query_line,
    same_layout,
    score_line,
    strides,
    variant,
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
    tensors = [tensor for term in call.score_terms for tensor in term_tensors(term).values()]
    query, key, value = dense(call.query), dense(call.key), dense(call.value)
    if not same_layout(key, value):
        key, value = key.contiguous(), value.contiguous()
    with torch.cuda.device_of(query):
        return _Attention.apply(Plan.of(call), query, key, value, *tensors)


class _Inputs(NamedTuple):
    """What every launch reads: tokens, the call's tensors (B, H, length, D), a table of distances for ``exp2``."""

    plan: Plan
    tokens: Tokens
    query: Tensor
    key: Tensor
    value: Tensor
    table: Tensor | None


class _GlobalRows(NamedTuple):
    """What the global queries' backward pass by queries leaves to that by keys; ``lse`` and ``delta`` (B, H, G)."""

    stream: Stream
    lse: Tensor
    delta: Tensor


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan: Plan, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor):
        ctx.plan, ctx.tokens = plan, Tokens.of(plan)
        x = _Inputs(plan, ctx.tokens, query, key, value, binary_scores(distance_table(plan, plan.terms)))
        out = empty_like(query)
        lse = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
        for stream in local_streams(plan, x.tokens, query, key, value):
            _forward(x, stream, stream.of_queries(out), stream.of_queries(lse))
        global_lse = None
        if plan.global_queries:
            stream = global_stream(plan, x.tokens, query, key, value)
            global_lse = lse.new_empty(*query.shape[:2], stream.num_queries)
            _forward(x, stream, out, global_lse, window_lse=lse)
        ctx.save_for_backward(query, key, value, out, lse, global_lse, *tensors)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out: Tensor):
        plan, tokens = ctx.plan, ctx.tokens
        query, key, value, out, lse, global_lse, *tensors = ctx.saved_tensors
        if not same_layout(grad_out, out):
            grad_out = torch.empty_like(out).copy_(grad_out)
        terms = TermGradients(plan.terms, tensors, ctx.needs_input_grad[4:])
        with torch.enable_grad():
            table = distance_table(plan, [term for term, _ in terms.terms])
        grad_table = None
        if table is not None and table.requires_grad:
            grad_table = torch.zeros(table.shape, dtype=table.dtype, device=table.device)
        x = _Inputs(plan, tokens, query, key, value, binary_scores(table))
        grad_query, delta, global_rows = torch.empty_like(out), torch.empty_like(lse), None
        streams = list(local_streams(plan, tokens, query, key, value))
        for stream in streams:
            rows = [stream.of_queries(y) for y in (out, grad_out, lse, delta, grad_query)]
            _backward_queries(x, stream, *rows, grad_table)
        if plan.global_queries:
            stream = global_stream(plan, tokens, query, key, value)
            global_rows = _GlobalRows(stream, global_lse, torch.empty_like(global_lse))
            _backward_queries(x, stream, out, grad_out, *global_rows[1:], grad_query, grad_table)
        grad_key, grad_value = _backward_keys(x, streams, grad_out, lse, delta, global_rows)
        if grad_table is not None:
            places = [place for _, numbers in terms.terms for place in numbers]
            grads = torch.autograd.grad(table, [terms.leaves[place] for place in places], grad_table)
            for place, grad in zip(places, grads, strict=True):
                terms.sums[place] += grad
        return None, grad_query, grad_key.to(key.dtype), grad_value.to(value.dtype), *terms.sums


def _forward(x: _Inputs, stream: Stream, out: Tensor, lse: Tensor, window_lse: Tensor | None = None) -> None:
    """Write the stream's ``out`` and ``lse``; the global queries' are +inf in ``window_lse`` afterwards."""
    num_keys, band = stream.key.size(2), stream.lane.band
    blocks = blocks_of(stream.num_queries, num_keys, x.query, narrow=x.table is not None)
    programs = num_programs(stream.key, stream.num_queries, blocks.queries)
    parts = num_parts(programs, keys_met(band, stream.num_queries, num_keys, blocks.queries) // blocks.keys)
    partial = parts > 1 or stream.query_token is not None
    to_out, to_lse = out, lse
    if partial:
        shape = (parts, *stream.key.shape[:2], stream.num_queries)
        to_out, to_lse = lse.new_empty(*shape, out.size(3)), lse.new_empty(shape)
    extra = extra_line(stream, x.tokens, x.key, x.value)
    launch(
        kernels.forward,
        (programs, parts),
        blocks,
        *query_line(stream),
        *key_line(stream),
        *extra,
        to_out,
        *strides(out),
        to_lse,
        *lse.stride(),
        *score_line(x.plan, stream, parts, x.table),
        *variant(x.plan, stream, blocks),
        SMALL_BLOCK if extra[-1] <= SMALL_BLOCK else blocks.keys,
        partial,
    )
    if partial:
        _combine(to_out, out, stream.query_token, to_lse, lse, window_lse)


def _backward_queries(
    x: _Inputs,
    stream: Stream,
    out: Tensor,
    grad_out: Tensor,
    lse: Tensor,
    delta: Tensor,
    grad_query: Tensor,
    grad_table: Tensor | None,
) -> None:
    """Write the stream's ``grad_query`` and ``delta``, the rows' sums of out · grad_out; add to ``grad_table``."""
    num_keys, lane = stream.key.size(2), stream.lane
    blocks = blocks_of(stream.num_queries, num_keys, x.query, narrow=x.table is not None)
    if grad_table is not None:
        blocks = blocks._replace(queries=min(blocks.queries, 32))
    programs = num_programs(stream.key, stream.num_queries, blocks.queries)
    parts = num_parts(programs, keys_met(lane.band, stream.num_queries, num_keys, blocks.queries) // blocks.keys)
    partial = parts > 1 or stream.query_token is not None
    to_grad = grad_query
    if partial:
        to_grad = lse.new_empty(parts, *stream.key.shape[:2], stream.num_queries, out.size(3))
    extra = extra_line(stream, x.tokens, x.key, x.value)
    launch(
        kernels.backward_queries,
        (programs, parts),
        blocks,
        *query_line(stream),
        *key_line(stream),
        *extra,
        out,
        *strides(out),
        lse,
        *lse.stride(),
        grad_out,
        delta,
        to_grad,
        None if grad_table is None else grad_table[lane.heads],
        *score_line(x.plan, stream, parts, x.table),
        *variant(x.plan, stream, blocks),
        SMALL_BLOCK if extra[-1] <= SMALL_BLOCK else blocks.keys,
        partial,
        stream.query_token is None and x.plan.key_stride == 1,
    )
    if partial:
        _combine(to_grad, grad_query, stream.query_token)


def _backward_keys(
    x: _Inputs,
    streams: list[Stream],
    grad_out: Tensor,
    lse: Tensor,
    delta: Tensor,
    global_rows: _GlobalRows | None,
) -> tuple[Tensor, Tensor]:
    """The gradients of key and value."""
    one = len(streams) == 1
    # one stream has all keys, and each key's program sums up and writes all of its gradient but that of global keys
    make = empty_like if one else lambda like: zeros_like(like, torch.float32)
    grad_key, grad_value = make(x.key), make(x.value)
    for stream in streams:
        rows = [stream.of_queries(y) for y in (grad_out, lse, delta)]
        grads = stream.of_keys(grad_key), stream.of_keys(grad_value)
        _backward_keys_of(x, stream, *rows, *grads, global_rows if one else None)
    if global_rows and not one:
        stream = global_rows.stream._replace(num_queries=0)
        _backward_keys_of(x, stream, grad_out, lse, delta, grad_key, grad_value, global_rows, add=True)
    if x.plan.global_keys:
        for stream in streams:
            rows = [stream.of_queries(y) for y in (grad_out, lse, delta)]
            grads = grad_key[:, stream.lane.heads], grad_value[:, stream.lane.heads]
            stream = global_keys_of(stream, x.key, x.value)
            _backward_keys_of(x, stream, *rows, *grads, key_token=x.tokens.global_keys)
    return grad_key, grad_value


def _backward_keys_of(
    x: _Inputs,
    stream: Stream,
    grad_out: Tensor,
    lse: Tensor,
    delta: Tensor,
    grad_key: Tensor,
    grad_value: Tensor,
    global_rows: _GlobalRows | None = None,
    *,
    key_token: Tensor | None = None,
    add: bool = False,
) -> None:
    """Write, or add to, the gradients of a stream's keys; add to those that ``key_token`` says, where it does."""
    num_keys = stream.key.size(2) if key_token is None else key_token.size(1)
    extra, num_extra = (None, None, None, 0, 0), 0
    if global_rows:
        token, num_extra = global_rows.stream.query_token, global_rows.stream.num_queries
        extra = global_rows.lse, global_rows.delta, token, num_extra, global_rows.stream.draw
    blocks = blocks_of(stream.num_queries or num_extra, num_keys, x.query, narrow=x.table is not None)
    programs = num_programs(stream.key, num_keys, blocks.keys)
    parts = num_parts(
        programs, queries_met(stream.lane.band, stream.num_queries, num_keys, blocks.keys) // blocks.queries
    )
    partial = parts > 1 or key_token is not None
    to_key, to_value = grad_key, grad_value
    if partial:
        to_key, to_value = lse.new_empty(2, parts, *stream.key.shape[:2], num_keys, grad_key.size(3))
    query, *query_strides, _, num_queries = query_line(stream)
    launch(
        kernels.backward_keys,
        (programs, parts),
        blocks,
        query,
        *query_strides,
        num_queries,
        *key_line(stream)[:-1],
        num_keys,
        key_token,
        grad_out,
        *strides(grad_out),
        lse,
        delta,
        *lse.stride(),
        *extra,
        to_key,
        to_value,
        *strides(grad_key),
        *score_line(x.plan, stream, parts, x.table),
        *variant(x.plan, stream, blocks),
        SMALL_BLOCK if num_extra <= SMALL_BLOCK else blocks.queries,
        partial,
        add,
    )
    if partial:
        add = add or key_token is not None
        _combine(to_key, grad_key, key_token, add=add)
        _combine(to_value, grad_value, key_token, add=add)


def _combine(
    partial: Tensor,
    out: Tensor,
    token: Tensor | None,
    partial_lse: Tensor | None = None,
    lse: Tensor | None = None,
    window_lse: Tensor | None = None,
    *,
    add: bool = False,
) -> None:
    """Make ``out`` (B, H, L, D) of ``partial`` (parts, B, H, U, D), the rows ``token`` (B, U) of it or all."""
    parts, _, heads, num_rows, _ = partial.shape
    blocks = blocks_of(num_rows, num_rows, partial)
    launch(
        kernels.combine,
        (num_programs(partial[0], num_rows, blocks.queries),),
        blocks,
        partial,
        partial_lse,
        token,
        num_rows,
        out,
        *strides(out),
        lse,
        *((0, 0, 0) if lse is None else lse.stride()),
        window_lse,
        *((0, 0) if window_lse is None else window_lse.stride()[:2]),
        heads,
        parts,
        *head_sizes(partial),
        blocks.queries,
        add,
    )
