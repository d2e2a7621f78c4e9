"""The launches of the Triton kernels, forward and backward."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends.plan import Plan, empty_like, zeros_like
from fairseq_poolingformer.attention.backends.triton import backward as backward_kernels
from fairseq_poolingformer.attention.backends.triton import forward as forward_kernels
from fairseq_poolingformer.attention.backends.triton.arguments import (
    Blocks,
    KernelStream,
    Tokens,
    block_for,
    blocks_of,
    extra_line,
    global_keys_of,
    head_sizes,
    key_line,
    keys_met,
    launch,
    num_parts,
    num_programs,
    queries_met,
    query_line,
    score_line,
    strides,
    variant,
)
from fairseq_poolingformer.attention.backends.triton.terms import PositionTables, position_line


class Inputs(NamedTuple):
    """What every launch reads: tokens, the call's tensors (B, H, length, D), and what its score terms come to."""

    plan: Plan
    tokens: Tokens
    query: Tensor
    key: Tensor
    value: Tensor
    table: Tensor | None
    positions: PositionTables | None

    def blocks(self, num_queries: int, num_keys: int) -> Blocks:
        with_table, with_positions = self.table is not None, self.positions is not None
        return blocks_of(num_queries, num_keys, self.query, with_table=with_table, with_positions=with_positions)


class GlobalRows(NamedTuple):
    """What the global queries' backward pass by queries leaves to that by keys; ``lse`` and ``delta`` (B, H, G)."""

    stream: KernelStream
    lse: Tensor
    delta: Tensor


def forward(x: Inputs, stream: KernelStream, out: Tensor, lse: Tensor, window_lse: Tensor | None = None) -> None:
    """Write the stream's ``out`` and ``lse``; the global queries' are +inf in ``window_lse`` afterwards."""
    blocks, programs, parts, partial = _cut_queries(x, stream)
    to_out, to_lse = out, lse
    if partial:
        shape = (parts, *stream.key.shape[:2], stream.num_queries)
        to_out, to_lse = lse.new_empty(*shape, out.size(3)), lse.new_empty(shape)
    extra = extra_line(stream, x.tokens, x.key, x.value)
    launch(
        forward_kernels.forward,
        (programs, parts),
        blocks,
        *query_line(stream),
        *key_line(stream),
        *extra,
        to_out,
        *strides(out),
        to_lse,
        *lse.stride(),
        *score_line(x.plan, stream, parts, x.table, _positions_of_queries(x, stream)),
        *variant(x.plan, stream, blocks),
        block_for(extra[-1], blocks.keys),
        partial,
    )
    if partial:
        _combine(to_out, out, stream.query_token, to_lse, lse, window_lse)


def backward_queries(
    x: Inputs,
    stream: KernelStream,
    out: Tensor,
    grad_out: Tensor,
    lse: Tensor,
    delta: Tensor,
    grad_query: Tensor,
    grad_table: Tensor | None,
) -> None:
    """Write the stream's ``grad_query`` and ``delta``, the rows' sums of out · grad_out; add to ``grad_table``."""
    blocks, programs, parts, partial = _cut_queries(x, stream, most=None if grad_table is None else 32)
    to_grad = grad_query
    if partial:
        to_grad = lse.new_empty(parts, *stream.key.shape[:2], stream.num_queries, out.size(3))
    extra = extra_line(stream, x.tokens, x.key, x.value)
    launch(
        backward_kernels.backward_queries,
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
        None if grad_table is None else grad_table[stream.lane.heads],
        *score_line(x.plan, stream, parts, x.table, _positions_of_queries(x, stream)),
        *variant(x.plan, stream, blocks),
        block_for(extra[-1], blocks.keys),
        partial,
        stream.query_token is None and x.plan.key_stride == 1,
    )
    if partial:
        _combine(to_grad, grad_query, stream.query_token)


def _positions_of_queries(x: Inputs, stream: KernelStream) -> tuple[Any, Any]:
    """positions, extra_positions of a kernel that goes by a stream's queries."""
    gathered = stream.query_token is not None
    extra = x.tokens.global_keys is not None and not gathered
    return position_line(x.positions, stream.lane.heads, gathered=gathered, extra=extra, by_key=False)


def _cut_queries(x: Inputs, stream: KernelStream, most: int | None = None) -> tuple[Blocks, int, int, bool]:
    """How a kernel goes by a stream's queries, at most ``most`` in a block.

    Returns:
        The blocks; programs; parts, which share the keys of a program; whether results are partial, to be combined.
    """
    num_keys = stream.key.size(2)
    blocks = x.blocks(stream.num_queries, num_keys)
    if most is not None:
        blocks = blocks._replace(queries=min(blocks.queries, most))
    programs = num_programs(stream.key, stream.num_queries, blocks.queries)
    met = keys_met(stream.lane.band, stream.num_queries, num_keys, blocks.queries)
    parts = num_parts(programs, met // blocks.keys)
    return blocks, programs, parts, parts > 1 or stream.query_token is not None


def backward_keys(
    x: Inputs,
    streams: list[KernelStream],
    grad_out: Tensor,
    lse: Tensor,
    delta: Tensor,
    global_rows: GlobalRows | None,
) -> tuple[Tensor, Tensor]:
    """The gradients of key and value, which the global queries have a share in."""
    one = len(streams) == 1 and streams[0].key.size(2) == x.key.size(2)
    if one:  # its programs sum up and write all of each key's gradient but what local queries give to global keys
        grad_key, grad_value = empty_like(x.key), empty_like(x.value)
    else:
        grad_key, grad_value = zeros_like(x.key, torch.float32), zeros_like(x.value, torch.float32)
    for stream in streams:
        rows = [stream.of_queries(y) for y in (grad_out, lse, delta)]
        grads = stream.of_keys(grad_key), stream.of_keys(grad_value)
        _gradients_of_keys(x, stream, *rows, *grads, global_rows if one else None)
    if global_rows and not one:
        stream = global_rows.stream._replace(num_queries=0)
        _gradients_of_keys(x, stream, grad_out, lse, delta, grad_key, grad_value, global_rows, add=True)
    if x.plan.global_keys:
        for stream in streams:
            rows = [stream.of_queries(y) for y in (grad_out, lse, delta)]
            grads = grad_key[:, stream.lane.heads], grad_value[:, stream.lane.heads]
            stream = global_keys_of(stream, x.key, x.value)
            _gradients_of_keys(x, stream, *rows, *grads, key_token=x.tokens.global_keys)
    return grad_key, grad_value


def _gradients_of_keys(
    x: Inputs,
    stream: KernelStream,
    grad_out: Tensor,
    lse: Tensor,
    delta: Tensor,
    grad_key: Tensor,
    grad_value: Tensor,
    global_rows: GlobalRows | None = None,
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
    blocks = x.blocks(stream.num_queries or num_extra, num_keys)
    programs = num_programs(stream.key, num_keys, blocks.keys)
    parts = num_parts(
        programs, queries_met(stream.lane.band, stream.num_queries, num_keys, blocks.keys) // blocks.queries
    )
    partial = parts > 1 or key_token is not None
    to_key, to_value = grad_key, grad_value
    if partial:
        to_key, to_value = lse.new_empty(2, parts, *stream.key.shape[:2], num_keys, grad_key.size(3))
    query, *query_strides, _, num_queries = query_line(stream)
    positions = position_line(
        x.positions, stream.lane.heads, gathered=key_token is not None, extra=global_rows is not None, by_key=True
    )
    launch(
        backward_kernels.backward_keys,
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
        *score_line(x.plan, stream, parts, x.table, positions),
        *variant(x.plan, stream, blocks),
        block_for(num_extra, blocks.queries),
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
        forward_kernels.combine,
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
