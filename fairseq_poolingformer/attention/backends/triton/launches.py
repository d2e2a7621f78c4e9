"""The launches of the Triton kernels, forward and backward: numbers once a geometry, tensors at every call."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends.plan import Plan, empty_like, strides_of_empty, zeros_like
from fairseq_poolingformer.attention.backends.triton import backward as backward_kernels
from fairseq_poolingformer.attention.backends.triton import forward as forward_kernels
from fairseq_poolingformer.attention.backends.triton.arguments import (
    PRECISIONS,
    Geometry,
    Group,
    Tokens,
    block_for,
    global_group,
    keys_met,
    limits,
    local_groups,
    num_splits,
    padded,
    queries_met,
)
from fairseq_poolingformer.attention.backends.triton.launcher import Launch
from fairseq_poolingformer.attention.backends.triton.terms import NO_POSITIONS, PositionTables, position_line

DRAW_OF_POOLS = 4  # as the kernels have it: tells dropout of the pools from that of tokens and global tokens


class PoolInputs(NamedTuple):
    """The pools beside the tokens in one softmax."""

    plan: Plan
    key: Tensor  # (B, H, P, D)
    value: Tensor


class Inputs(NamedTuple):
    """The inputs of every launch: tokens, the call's tensors (B, H, length, D), and the tables of its score terms."""

    plan: Plan
    tokens: Tokens
    query: Tensor
    key: Tensor
    value: Tensor
    table: Tensor | None = None
    positions: PositionTables | None = None
    pools: PoolInputs | None = None
    draw: int = 0  # of the first group

    def launches(self, out: Tensor, lse: Tensor, grad_table: bool = False) -> Launches:
        """The launches of the call's geometry."""
        plan, query, key, table, hidden = self.plan, self.query, self.key, self.table, self.tokens.key_hidden
        batch, heads, num_queries, head_dim = query.shape
        global_keys, global_queries, pools = self.tokens.global_keys, self.tokens.global_queries, None
        unseen, near = plan.unseen, (0, 0, 0)
        if self.pools is not None:
            of_pools, pool_key, _ = self.pools
            unseen = of_pools.unseen
            pools = pool_key.stride()[:3], pool_key.size(2), of_pools.classes[0].band, of_pools.key_stride
        if unseen is not None:
            most = unseen.counted.size(1)  # as far as any two tokens are apart, in 32 bits
            near = most, min(unseen.window.left, most), min(unseen.window.right, most)
        products = torch.get_float32_matmul_precision() if query.dtype == torch.float32 else "highest"
        return launches_of(
            Geometry(
                query.device, query.dtype, PRECISIONS[products], batch, heads, num_queries, key.size(2), head_dim,
                query.stride()[:3], key.stride()[:3], (0, 0) if hidden is None else hidden.stride(),
                out.stride()[:3], lse.stride(),
                0 if global_keys is None else global_keys.size(1),
                0 if global_queries is None else global_queries.size(1),
                plan.classes, plan.query_offset, plan.key_offset, plan.key_stride, plan.scale, plan.dropout.probability,
                self.draw, 0 if table is None else table.size(1), grad_table, self.positions is not None,
                near, pools,
            )
        )  # fmt: skip

    def of_queries(self, group: Group) -> tuple[Tensor | None, ...]:
        """query … pool_value of a kernel whose programs have a group's queries."""
        key, value, (hidden, real, global_keys, token) = self.key, self.value, self.tokens
        if group.gathered:
            return self.query, token, key, value, hidden, real, *[None] * 5
        extra: tuple[Tensor | None, ...] = (None, None, None)
        if global_keys is not None:
            extra = group.of_heads(key), group.of_heads(value), global_keys
        if hidden is not None and not group.residues.whole:
            hidden = hidden[:, group.residues.keys]
        query, key, value = group.of_queries(self.query), group.of_keys(key), group.of_keys(value)
        pools = (None, None) if self.pools is None else self.pools[1:]
        return query, None, key, value, hidden, real, *extra, *pools

    def of_terms(self, group: Group, *, gathered: bool, extra: bool, by_key: bool = False) -> tuple[Any, ...]:
        """table, before, seed, and of calls with positions their tables; see :func:`position_line`."""
        unseen, heads = self.plan.unseen, group.residues.heads
        if self.pools is not None and not (gathered or by_key):
            unseen = self.pools.plan.unseen
        table = None if self.table is None else self.table[heads]
        terms = table, None if unseen is None else unseen.before, self.plan.dropout.seed
        if self.positions is None:
            return terms
        return *terms, *position_line(self.positions, heads, gathered=gathered, extra=extra, by_key=by_key)


class Step(NamedTuple):
    """A launch for a group, and the one that combines its partial results."""

    group: Group
    launch: Launch
    partial: tuple[int, ...] | None  # (…, splits, B, H, length, D)
    combine: Launch | None
    extra: bool  # it has an extra lane


class Launches:
    """All launches of one geometry."""

    def __init__(self, geometry: Geometry) -> None:
        g = self.geometry = geometry
        self.groups = local_groups(g)
        self.forward = [self._by_queries(forward_kernels.forward, group) for group in self.groups]
        self.queries = [self._by_queries(backward_kernels.backward_queries, group) for group in self.groups]
        self.forward_of_globals = self.queries_of_globals = None
        self.one_group = len(self.groups) == 1 and self.groups[0].num_keys == g.num_keys
        self.keys = [self._by_keys(group, g.num_global_queries if self.one_group else 0) for group in self.groups]
        if g.num_global_queries:
            group = global_group(g)
            self.forward_of_globals = self._by_queries(forward_kernels.forward, group)
            self.queries_of_globals = self._by_queries(backward_kernels.backward_queries, group)
            if not self.one_group:
                group = group._replace(num_queries=0, gathered=False)
                self.keys.append(self._by_keys(group, g.num_global_queries, add=True))
        self.global_keys = []
        for group in self.groups:
            if self._has_global_lane(group):
                residues = replace(group.residues, keys=slice(None), band=None)
                # queries whose window does not show a global key add to that key's gradient, too
                every_key = group._replace(draw=group.draw + 1, residues=residues, num_keys=g.num_keys)
                self.global_keys.append(self._by_keys(every_key, 0, window=group, add=True))

    def _has_global_lane(self, group: Group) -> bool:
        """Whether a group's queries see global keys beside those that its window shows."""
        g = self.geometry
        return g.num_global_keys > 0 and not group.gathered and (group.residues.band is not None or g.positions)

    def _strides(self, group: Group) -> tuple[tuple[int, ...], ...]:
        """query, key, key_hidden, out and lse's of a group; those of global queries are contiguous."""
        g, queries, keys = self.geometry, group.residues.queries.step or 1, group.residues.keys.step or 1
        lse = g.lse
        if group.gathered:
            lse = g.heads * group.num_queries, group.num_queries, 1
        (hidden_b, hidden_n), every_query, every_key = g.key_hidden, (1, 1, queries), (1, 1, keys)
        query, key, out, lse = (
            tuple(x * y for x, y in zip(strides, steps, strict=True))
            for strides, steps in ((g.query, every_query), (g.key, every_key), (g.out, every_query), (lse, every_query))
        )
        return query, key, (hidden_b, hidden_n * keys), out, lse

    def _by_queries(self, kernel: Any, group: Group) -> Step:
        """A launch whose programs have a group's queries."""
        g, forward = self.geometry, kernel is forward_kernels.forward
        shape = g.tile_shape(group.num_queries, group.num_keys)
        if g.grad_table and not forward:
            shape = shape._replace(queries=min(shape.queries, 32))
        programs = g.batch * group.num_heads * -(-group.num_queries // shape.queries)
        met = keys_met(group.residues.band, group.num_queries, group.num_keys, shape.queries)
        splits = num_splits(programs, met // shape.keys)  # few programs: several split a query block's keys
        partial, num_extra = splits > 1 or group.gathered, g.num_global_keys if self._has_global_lane(group) else 0
        query, key, hidden, out, lse = self._strides(group)
        pools: tuple[Any, ...] = (0,) * 7
        if g.pools is not None and not group.gathered:
            strides, num_pools, band, size = g.pools
            pools = *strides, num_pools, *limits(band, group.num_queries, num_pools), size
        launch = Launch(
            kernel, (programs, splits), shape, *(() if g.positions else (NO_POSITIONS,) * 2),
            *query, group.num_queries, *key, *hidden, group.num_keys, *out, *lse,
            g.key[2] if num_extra else 0, num_extra, *pools,
            *g.scores(group, splits, g.pools is None or not group.gathered), *g.constants(group, shape),
            block_for(num_extra, shape.keys), min(32, shape.keys), partial,
            *(() if forward else (not group.gathered and g.key_stride == 1,)),
        )  # fmt: skip
        if not partial:
            return Step(group, launch, None, None, num_extra > 0)
        rows = splits, g.batch, group.num_heads, group.num_queries, g.head_dim
        window = g.lse[:2] if forward and group.gathered else (0, 0)
        return Step(group, launch, rows, self._combine(rows, out, lse if forward else (0, 0, 0), window), num_extra > 0)

    def _by_keys(self, group: Group, num_extra: int, *, window: Group | None = None, add: bool = False) -> Step:
        """A launch whose programs have a group's keys, of which global queries are the extra lane.

        With ``window`` they have the global keys, and add what queries see of them beyond that group's window.
        """
        g, of_globals = self.geometry, window is not None
        num_keys = g.num_global_keys if of_globals else group.num_keys
        shape = g.tile_shape(group.num_queries or num_extra, num_keys)
        if g.unseen[0] and g.pools is None:  # Hopper multiplies tiles of 64 rows, here keys; with dropout they'd spill
            shape = shape._replace(queries=shape.keys, keys=shape.keys if g.dropout_p else shape.queries)
        programs = g.batch * group.num_heads * -(-num_keys // shape.keys)
        met = queries_met(group.residues.band, group.num_queries, num_keys, shape.keys)
        splits = num_splits(programs, met // shape.queries)  # few programs: several split a key block's queries
        partial = splits > 1 or of_globals
        query, key, hidden, out, lse = self._strides(group)
        grad = strides_of_empty(g.batch, g.heads, g.head_dim)
        grad = grad[0], grad[1], grad[2] * (group.residues.keys.step or 1)
        launch = Launch(
            backward_kernels.backward_keys, (programs, splits), shape, *(() if g.positions else (NO_POSITIONS,) * 2),
            *query, group.num_queries, *key, *((0, 0) if of_globals else hidden), num_keys, *out, *lse,
            num_extra, 2 * len(g.classes) if num_extra else 0, *grad,
            *g.scores(group if window is None else window._replace(draw=group.draw), splits, g.pools is None),
            *g.constants(group, shape), block_for(num_extra, shape.queries), partial, add and not of_globals,
        )  # fmt: skip
        if not partial:
            return Step(group, launch, None, None, num_extra > 0)
        rows = 2, splits, g.batch, group.num_heads, num_keys, g.head_dim
        return Step(group, launch, rows, self._combine(rows, grad, add=add), num_extra > 0)

    def _combine(
        self,
        partial: tuple[int, ...],
        out: tuple[int, ...],
        lse: tuple[int, ...] = (0, 0, 0),
        window_lse: tuple[int, ...] = (0, 0),
        add: bool = False,
    ) -> Launch:
        """Combine ``partial`` to (B, H, L, D) of strides ``out``, with a dimension more to two of them."""
        splits, batch, heads, num_rows, head_dim = partial[-5:]
        shape = self.geometry._replace(dtype=torch.float32, positions=False).tile_shape(num_rows, num_rows)
        return Launch(
            forward_kernels.combine, (batch * heads * -(-num_rows // shape.queries), len(partial) - 4), shape,
            num_rows, *out, *lse, *window_lse, heads, splits, head_dim, padded(head_dim), shape.queries, add,
        )  # fmt: skip


launches_of = lru_cache(maxsize=256)(Launches)


def forward(x: Inputs, step: Step, out: Tensor, lse: Tensor, window_lse: Tensor | None = None) -> None:
    """Write the group's ``out`` and ``lse``; set ``window_lse`` to +inf at global queries."""
    group, to_out, to_lse = step.group, out, lse
    if step.partial is not None:
        to_out, to_lse = lse.new_empty(step.partial), lse.new_empty(step.partial[:-1])
    terms = x.of_terms(group, gathered=group.gathered, extra=step.extra)
    step.launch(*x.of_queries(group), to_out, to_lse, *terms)
    if step.combine is not None:
        token = x.tokens.global_queries if group.gathered else None
        step.combine(to_out, to_lse, token, out, None, lse, window_lse)


def backward_queries(
    x: Inputs,
    step: Step,
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
    group = step.group
    to_grad = grad_query if step.partial is None else lse.new_empty(step.partial)
    table = None if grad_table is None else grad_table[group.residues.heads]
    terms = x.of_terms(group, gathered=group.gathered, extra=step.extra)
    step.launch(*x.of_queries(group), out, lse, grad_out, grad_lse, delta, to_grad, table, *terms)
    if step.combine is not None:
        token = x.tokens.global_queries if group.gathered else None
        step.combine(to_grad, None, token, grad_query, None, None, None)


def backward_keys(
    x: Inputs,
    launches: Launches,
    grad_out: Tensor,
    lse: Tensor,
    delta: Tensor,
    global_lse: Tensor | None,
    global_delta: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The gradients of key and value, those from global queries included, of whom ``global_lse`` … (B, H, G) are."""
    if launches.one_group:  # its programs write each key's whole gradient, except what local queries add to global keys
        grad_key, grad_value = empty_like(x.key), empty_like(x.value)
    else:
        grad_key, grad_value = zeros_like(x.key, torch.float32), zeros_like(x.value, torch.float32)
    for step in launches.keys:
        _gradients_of_keys(x, step, grad_out, lse, delta, grad_key, grad_value, global_lse, global_delta)
    for step in launches.global_keys:
        _gradients_of_keys(x, step, grad_out, lse, delta, grad_key, grad_value, token=x.tokens.global_keys)
    return grad_key, grad_value


def _gradients_of_keys(
    x: Inputs,
    step: Step,
    grad_out: Tensor,
    lse: Tensor,
    delta: Tensor,
    grad_key: Tensor,
    grad_value: Tensor,
    global_lse: Tensor | None = None,
    global_delta: Tensor | None = None,
    *,
    token: Tensor | None = None,
) -> None:
    """Write, or add to, the gradients of a group's keys; with ``token`` (B, G) add to the keys that it names."""
    group, of, hidden = step.group, step.group.of_queries, x.tokens.key_hidden if token is None else None
    if hidden is not None and not group.residues.whole:
        hidden = hidden[:, group.residues.keys]
    extra = (global_lse, global_delta, x.tokens.global_queries) if step.extra else (None, None, None)
    grad_key, grad_value = group.of_keys(grad_key), group.of_keys(grad_value)
    to_key, to_value = grad_key, grad_value
    if step.partial is not None:
        partial = lse.new_empty(step.partial)
        to_key, to_value = partial.unbind()
    step.launch(
        of(x.query), group.of_keys(x.key), group.of_keys(x.value), hidden, token, of(grad_out), of(lse), of(delta),
        *extra, to_key, to_value, *x.of_terms(group, gathered=token is not None, extra=step.extra, by_key=True),
    )  # fmt: skip
    if step.combine is not None:
        step.combine(partial, None, token, grad_key, grad_value, None, None)
