"""The launches of the Triton kernels, forward and backward."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends.plan import Plan, empty_like, zeros_like
from fairseq_poolingformer.attention.backends.triton import backward as backward_kernels
from fairseq_poolingformer.attention.backends.triton import forward as forward_kernels
from fairseq_poolingformer.attention.backends.triton.arguments import (
    KernelGroup,
    TileShape,
    Tokens,
    block_for,
    extra_line,
    global_keys_of,
    head_sizes,
    key_line,
    keys_met,
    num_programs,
    num_splits,
    pool_line,
    queries_met,
    query_line,
    score_line,
    strides,
    tile_shape_of,
    variant,
)
from fairseq_poolingformer.attention.backends.triton.launcher import launch
from fairseq_poolingformer.attention.backends.triton.terms import PositionTables, position_line


class Inputs(NamedTuple):
    """The inputs of every launch: tokens, the call's tensors (B, H, length, D), and the tables of its score terms."""

    plan: Plan
    tokens: Tokens
    query: Tensor
    key: Tensor
    value: Tensor
    table: Tensor | None
    positions: PositionTables | None
    # the pools beside the tokens in one softmax; their counts are the plan's ``unseen``
    pools: KernelGroup | None = None

    def tile_shape(self, num_queries: int, num_keys: int) -> TileShape:
        with_lookups = self.table is not None or (self.plan.unseen is not None and self.pools is None)
        terms = {"with_lookups": with_lookups, "with_positions": self.positions is not None}
        return tile_shape_of(num_queries, num_keys, self.query, **terms)


class GlobalRows(NamedTuple):
    """The global queries in the pass by keys; ``lse`` and ``delta`` (B, H, G) come from the pass by queries."""

    group: KernelGroup
    lse: Tensor
    delta: Tensor


def forward(x: Inputs, group: KernelGroup, out: Tensor, lse: Tensor, window_lse: Tensor | None = None) -> None:
    """Write the group's ``out`` and ``lse``; set ``window_lse`` to +inf at global queries."""
    shape, programs, splits, partial = _cut_queries(x, group)
    to_out, to_lse = out, lse
    if partial:
        rows = (splits, *group.key.shape[:2], group.num_queries)
        to_out, to_lse = lse.new_empty(*rows, out.size(3)), lse.new_empty(rows)
    extra = extra_line(group, x.tokens, x.key, x.value)
    launch(
        forward_kernels.forward, (programs, splits), shape, *query_line(group), *key_line(group), *extra,
        *_pools_of_queries(x, group), to_out, *strides(out), to_lse, *lse.stride(),
        *score_line(x.plan, group, splits, x.table, _positions_of_queries(x, group)),
        *variant(x.plan, group, shape), block_for(extra[-1], shape.keys), min(32, shape.keys), partial,
    )  # fmt: skip
    if partial:
        _combine(to_out, out, group.query_token, to_lse, lse, window_lse)


def backward_queries(
    x: Inputs,
    group: KernelGroup,
    out: Tensor,
    grad_out: Tensor,
    lse: Tensor,
    delta: Tensor,
    grad_query: Tensor,
    grad_table: Tensor | None,
    grad_lse: Tensor | None,
) -> None:
    """Write the group's ``grad_query`` and ``delta``, the rows' sums of out · grad_out; add to ``grad_table``.

    ``grad_lse``, laid out as ``lse``, is taken from ``delta``.
    """
    shape, programs, splits, partial = _cut_queries(x, group, most=None if grad_table is None else 32)
    to_grad = grad_query
    if partial:
        to_grad = lse.new_empty(splits, *group.key.shape[:2], group.num_queries, out.size(3))
    extra = extra_line(group, x.tokens, x.key, x.value)
    launch(
        backward_kernels.backward_queries, (programs, splits), shape, *query_line(group), *key_line(group), *extra,
        *_pools_of_queries(x, group), out, *strides(out), lse, *lse.stride(), grad_out, grad_lse, delta, to_grad,
        None if grad_table is None else grad_table[group.residues.heads],
        *score_line(x.plan, group, splits, x.table, _positions_of_queries(x, group)),
        *variant(x.plan, group, shape), block_for(extra[-1], shape.keys), min(32, shape.keys), partial,
        group.query_token is None and x.plan.key_stride == 1,
    )  # fmt: skip
    if partial:
        _combine(to_grad, grad_query, group.query_token)


def _pools_of_queries(x: Inputs, group: KernelGroup) -> tuple[Any, ...]:
    """The pools for queries that are not global."""
    if x.pools is None or group.query_token is not None:
        return pool_line(None, 0)
    return pool_line(x.pools, x.plan.unseen.pooling.kernel_size)


def _positions_of_queries(x: Inputs, group: KernelGroup) -> tuple[Any, Any]:
    """positions, extra_positions of a kernel whose programs have a group's queries."""
    gathered = group.query_token is not None
    extra = x.tokens.global_keys is not None and not gathered
    return position_line(x.positions, group.residues.heads, gathered=gathered, extra=extra, by_key=False)


def _cut_queries(x: Inputs, group: KernelGroup, most: int | None = None) -> tuple[TileShape, int, int, bool]:
    """How a kernel whose programs have a group's queries is launched, with at most ``most`` queries in a tile.

    Returns:
        The tile; the programs; the splits of each program's keys; whether results are partial and must be combined.
    """
    num_keys = group.key.size(2)
    shape = x.tile_shape(group.num_queries, num_keys)
    if most is not None:
        shape = shape._replace(queries=min(shape.queries, most))
    programs = num_programs(group.key, group.num_queries, shape.queries)
    met = keys_met(group.residues.band, group.num_queries, num_keys, shape.queries)
    splits = num_splits(programs, met // shape.keys)
    return shape, programs, splits, splits > 1 or group.query_token is not None


def backward_keys(
    x: Inputs,
    groups: list[KernelGroup],
    grad_out: Tensor,
    lse: Tensor,
    delta: Tensor,
    global_rows: GlobalRows | None,
) -> tuple[Tensor, Tensor]:
    """The gradients of key and value, those from global queries included."""
    one = len(groups) == 1 and groups[0].key.size(2) == x.key.size(2)
    if one:  # its programs write each key's whole gradient, except what local queries add to global keys
        grad_key, grad_value = empty_like(x.key), empty_like(x.value)
    else:
        grad_key, grad_value = zeros_like(x.key, torch.float32), zeros_like(x.value, torch.float32)
    for group in groups:
        rows = group.of_queries(grad_out), group.of_queries(lse), group.of_queries(delta)
        grads = group.of_keys(grad_key), group.of_keys(grad_value)
        _gradients_of_keys(x, group, *rows, *grads, global_rows if one else None)
    if global_rows and not one:
        group = global_rows.group._replace(num_queries=0)
        _gradients_of_keys(x, group, grad_out, lse, delta, grad_key, grad_value, global_rows, add=True)
    if x.plan.masks.global_keys:
        for group in groups:
            rows = group.of_queries(grad_out), group.of_queries(lse), group.of_queries(delta)
            grads = grad_key[:, group.residues.heads], grad_value[:, group.residues.heads]
            group = global_keys_of(group, x.key, x.value)
            _gradients_of_keys(x, group, *rows, *grads, key_token=x.tokens.global_keys)
    return grad_key, grad_value


def _gradients_of_keys(
    x: Inputs,
    group: KernelGroup,
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
    """Write, or add to, the gradients of a group's keys; with ``key_token`` add to the keys that it names."""
    num_keys = group.key.size(2) if key_token is None else key_token.size(1)
    extra: tuple[Any, ...] = (None, None, None, 0, 0)
    num_extra = 0
    if global_rows:
        token, num_extra = global_rows.group.query_token, global_rows.group.num_queries
        extra = global_rows.lse, global_rows.delta, token, num_extra, global_rows.group.draw
    shape = x.tile_shape(group.num_queries or num_extra, num_keys)
    if x.plan.unseen is not None:  # Hopper multiplies tiles of 64 rows, here keys; with dropout they would spill
        keys = shape.keys if x.plan.dropout.probability else shape.queries
        shape = shape._replace(queries=shape.keys, keys=keys)
    programs = num_programs(group.key, num_keys, shape.keys)
    splits = num_splits(
        programs, queries_met(group.residues.band, group.num_queries, num_keys, shape.keys) // shape.queries
    )
    partial = splits > 1 or key_token is not None
    to_key, to_value = grad_key, grad_value
    if partial:
        to_partial = lse.new_empty(2, splits, *group.key.shape[:2], num_keys, grad_key.size(3))
        to_key, to_value = to_partial
    query, *query_strides, _, num_queries = query_line(group)
    positions = position_line(
        x.positions, group.residues.heads, gathered=key_token is not None, extra=global_rows is not None, by_key=True
    )
    launch(
        backward_kernels.backward_keys, (programs, splits), shape, query, *query_strides, num_queries,
        *key_line(group)[:-1], num_keys, key_token, grad_out, *strides(grad_out), lse, delta, *lse.stride(), *extra,
        to_key, to_value, *strides(grad_key), *score_line(x.plan, group, splits, x.table, positions),
        *variant(x.plan, group, shape), block_for(num_extra, shape.queries), partial, add,
    )  # fmt: skip
    if partial:
        add = add or key_token is not None
        _combine(to_partial, grad_key, key_token, second=grad_value, add=add)


def _combine(
    partial: Tensor,
    out: Tensor,
    token: Tensor | None,
    partial_lse: Tensor | None = None,
    lse: Tensor | None = None,
    window_lse: Tensor | None = None,
    *,
    second: Tensor | None = None,
    add: bool = False,
) -> None:
    """Combine ``partial`` (splits, B, H, U, D) to ``out`` (B, H, L, D): to its rows ``token`` (B, U), or to all.

    With ``second`` two of them: ``partial`` (2, splits, B, H, U, D).
    """
    splits, batch, heads, num_rows, _ = partial.shape[-5:]
    shape = tile_shape_of(num_rows, num_rows, partial)
    launch(
        forward_kernels.combine, (batch * heads * -(-num_rows // shape.queries), 1 if second is None else 2), shape,
        partial, partial_lse, token, num_rows, out, second, *strides(out), lse,
        *((0, 0, 0) if lse is None else lse.stride()), window_lse,
        *((0, 0) if window_lse is None else window_lse.stride()[:2]), heads, splits, *head_sizes(partial),
        shape.queries, add,
    )  # fmt: skip
