"""Attention one query block at a time, in linear memory, on any device.

Each query block is multiplied with the slice of keys that it can see: no unfolded copy of the keys, no stored scores.
The backward pass recomputes the probabilities from the saved log-denominators (Dao et al. 2022, FlashAttention,
alg. 4).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends.block import fused
from fairseq_poolingformer.attention.backends.block.disentangled import DisentangledOfGroup
from fairseq_poolingformer.attention.backends.block.lanes import (
    KeyBlock,
    QueryBlock,
    QueryGroup,
    Tensors,
    add_bmm,
    global_group,
    local_groups,
    take_index,
)
from fairseq_poolingformer.attention.backends.block.terms import BlockPair, TermOfGroup
from fairseq_poolingformer.attention.backends.operation import Operation, Saved, attend
from fairseq_poolingformer.attention.backends.plan import (
    LOG2E,
    Plan,
    TermGradients,
    dense,
    softmax_dtype,
    zeros_like,
)
from fairseq_poolingformer.attention.call import Call, Pairs
from fairseq_poolingformer.attention.score_terms.disentangled import DisentangledPosition


def why_not(call: Call) -> str | None:
    """None: it can run every call."""
    return None


def run(call: Call) -> Any:
    """See :func:`fairseq_poolingformer.attention.band_attention`."""
    return attend(OPERATION, *inputs(call))


def inputs(call: Call) -> tuple[Plan, Tensor, Tensor, Tensor]:
    """The plan, and query, key and value as :data:`OPERATION` takes them."""
    return Plan.of(call), dense(call.query), dense(call.key), dense(call.value)


def forward(plan: Plan, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor) -> Saved:
    """See :class:`Operation`."""
    batch, heads, queries, _ = query.shape
    out = zeros_like(query)
    lse = query.new_full((batch, heads, queries), torch.inf, dtype=softmax_dtype(query))
    slots = plan.global_queries.num_slots if plan.global_queries else 0
    global_lse = lse.new_full((batch, heads, slots), torch.inf)
    x = Tensors(query, key, value, out, lse, global_lse)
    with torch.autocast(query.device.type, enabled=False):
        for group in local_groups(plan, x):
            _forward(plan, group)
        if plan.global_queries:
            group = global_group(plan, x)
            _forward(plan, group)
            plan.global_queries.put(out, group.out)
            # the window pass also wrote these rows; lse = +inf makes their weights zero in the backward pass
            plan.global_queries.put(lse.unsqueeze(-1), torch.inf)
    return out, lse, global_lse


def backward(
    plan: Plan, saved: tuple[Tensor, ...], wanted: tuple[bool, ...], grad_out: Tensor, grad_lse: Tensor | None
) -> tuple[Tensor | None, ...]:
    """See :class:`Operation`."""
    query, key, value, out, lse, global_lse, *tensors = saved
    dtype = softmax_dtype(query)
    # with global keys a sum over two lanes
    grad_query = zeros_like(query, dtype if plan.masks.global_keys else None)
    grad_key, grad_value = zeros_like(key, dtype), zeros_like(value, dtype)
    x = Tensors(query, key, value, out, lse, global_lse, grad_out, grad_query, grad_key, grad_value, grad_lse)
    terms = TermGradients(plan.terms, tensors, wanted)
    with torch.autocast(query.device.type, enabled=False):
        for group in local_groups(plan, x):
            _backward(plan, group, terms)
            if plan.masks.global_keys:
                heads, lane = group.heads, group.lanes[1]
                plan.masks.global_keys.add(grad_key[:, heads], lane.grad_key)
                plan.masks.global_keys.add(grad_value[:, heads], lane.grad_value)
        if plan.global_queries:
            group = global_group(plan, x)
            _backward(plan, group, terms)
            plan.global_queries.put(grad_query, group.grad_query)
    return grad_query.to(query.dtype), grad_key.to(key.dtype), grad_value.to(value.dtype), *terms.results()


OPERATION = Operation(forward, backward, nothing=torch.inf)


def _forward(plan: Plan, group: QueryGroup) -> None:
    """Write ``group.out`` and ``group.lse``; each key block updates a running softmax."""
    if fused.can_run(plan, group):
        fused.forward(plan, group)
        return
    dtype, wide = _matmul_dtype(group.query), softmax_dtype(group.query)
    terms = _terms_of(plan, group)
    for block in group.query_blocks():
        query = block.take(group.query, dtype)
        # the running maximum that earlier lanes left; where they left nothing it is the smallest finite number, because
        # -inf - -inf is NaN
        top = block.take(group.lse.unsqueeze(-1), wide, torch.inf)
        blind = top == torch.inf
        top, total = top.masked_fill(blind, torch.finfo(wide).min), (~blind).to(wide)
        mixed = block.take(group.out, wide) * plan.dropout.keep
        for number, keys in enumerate(block.key_blocks()):
            weights = _scores(plan, terms, block, keys, query)
            higher = torch.maximum(top, weights.amax(-1, keepdim=True))
            weights.sub_(higher).exp2_()
            fade = top.sub_(higher).exp2_()
            total.mul_(fade).add_(weights.sum(-1, keepdim=True))
            if plan.dropout.probability:
                weights.mul_(plan.dropout.like(weights, (*block.number, number)))
            product = torch.bmm(weights.to(dtype), block.lane.take(block.lane.value, keys, dtype)).to(wide)
            mixed = torch.addcmul(product, mixed, fade)
            top = higher
        blind = total == 0.0
        block.write(group.out, mixed.div_(total.masked_fill(blind, 1.0).mul_(plan.dropout.keep)))
        block.write(group.lse.unsqueeze(-1), total.log2_().add_(top).masked_fill_(blind, torch.inf))


def _backward(plan: Plan, group: QueryGroup, gradients: TermGradients) -> None:
    """Write ``group.grad_query`` and add to the gradients of the lanes' keys and values and of the score terms."""
    dtype, wide = _matmul_dtype(group.query), softmax_dtype(group.query)
    terms = _terms_of(plan, group, gradients)
    for block in group.query_blocks():
        lane = block.lane
        query, grad_out = block.take(group.query, dtype), block.take(group.grad_out, dtype)
        lse = block.take(group.lse.unsqueeze(-1), wide, torch.inf)
        delta = (grad_out.to(wide) * block.take(group.out, wide)).sum(-1, keepdim=True)
        if group.grad_lse is not None:
            delta -= block.take(group.grad_lse.unsqueeze(-1), wide).masked_fill(lse == torch.inf, 0.0)
        grad_out = grad_out / plan.dropout.keep
        grad_query = torch.zeros_like(query, dtype=wide)
        for number, keys in enumerate(block.key_blocks()):
            weights = _scores(plan, terms, block, keys, query).sub_(lse).exp2_()
            grad_scores = torch.bmm(grad_out, lane.take(lane.value, keys, dtype).transpose(1, 2)).to(wide)
            kept = weights
            if plan.dropout.probability:
                mask = plan.dropout.like(weights, (*block.number, number))
                kept = weights * mask
                grad_scores.mul_(mask)
            keys.add(lane.grad_value, kept.to(dtype).transpose(1, 2), grad_out)
            grad_scores.sub_(delta).mul_(weights)
            if terms:
                pair, shape = _pair(plan, block, keys, query), lane.key.shape[:2]
                grad_key = lane.grad_key[:, :, keys.keys]
                for term in terms:
                    term.add_gradients(grad_scores.unflatten(0, shape), pair, grad_query.unflatten(0, shape), grad_key)
            grad_scores = grad_scores.to(dtype)
            keys.add(lane.grad_key, grad_scores.transpose(1, 2), query, plan.scale)
            add_bmm(grad_query, grad_scores, lane.take(lane.key, keys, dtype), plan.scale)
        block.add(group.grad_query, grad_query)
    for term in terms:
        term.finish()


def _terms_of(plan: Plan, group: QueryGroup, gradients: TermGradients | None = None) -> list[TermOfGroup]:
    """The call's score terms for a group; with ``gradients`` in the backward pass."""
    return [
        (DisentangledOfGroup if isinstance(term, DisentangledPosition) else TermOfGroup)(
            term, group.heads, plan.num_heads, gradients, number
        )
        for number, term in enumerate(plan.terms)
    ]


def _scores(plan: Plan, terms: list[TermOfGroup], block: QueryBlock, keys: KeyBlock, query: Tensor) -> Tensor:
    """Scaled, masked base-2 scores of a query block and a key block: (B·H, t, s), -inf where a key is not seen."""
    lane, dtype, wide = block.lane, query.dtype, softmax_dtype(block.lane.key)
    key = lane.take(lane.key, keys, dtype).transpose(1, 2)
    mask = lane.mask(block.start, query.size(1), keys, wide, LOG2E)
    if mask is not None and dtype == wide:
        scores = torch.baddbmm(mask, query, key, alpha=plan.scale * LOG2E)
    else:
        # scaled before it is rounded: q·k itself overflows float16 √D times sooner
        scores = torch.bmm(query * plan.scale, key).to(wide)
        scores = scores.mul_(LOG2E) if mask is None else torch.add(mask, scores, alpha=LOG2E, out=scores)
    by_row = scores.unflatten(0, lane.key.shape[:2])
    if terms:
        pair = _pair(plan, block, keys, query)
        for term in terms:
            term.add_scores(by_row, pair)
    if len(pools := lane.partial_in(keys.keys)):
        places = range(block.start, block.start + query.size(1))
        by_row[..., pools - keys.start] += lane.correction(places, pools, wide, LOG2E)[:, None]
    hidden = lane.hidden_in(keys.keys)
    if hidden is not None:
        by_row[..., : keys.size].masked_fill_(hidden[:, None, None, :], -torch.inf)
    if keys.size < keys.stop - keys.start:
        by_row[..., keys.size :] = -torch.inf
    return scores


def _pair(plan: Plan, block: QueryBlock, keys: KeyBlock, query: Tensor) -> BlockPair:
    """A query block, with its ``query`` (B·H, t, D), and a key block, as score terms read them."""
    group, lane, key = block.group, block.lane, block.lane.take(block.lane.key, keys, query.dtype)
    indices = take_index(group.index, block.start, query.size(1)), take_index(lane.index, keys.start, key.size(1))
    rows = lane.key.shape[:2]
    pairs = Pairs.of(plan, *indices, query.unflatten(0, rows), key.unflatten(0, rows), lane.with_global)
    return BlockPair(pairs, lane, block.start, keys.start)


def _matmul_dtype(x: Tensor) -> torch.dtype:
    """The dtype to multiply in: the tensor's own where the device has units for it, else float32."""
    if x.device.type != "cpu" or x.dtype not in (torch.float16, torch.bfloat16):
        return x.dtype
    onednn = torch.backends.mkldnn.is_available()
    if x.dtype == torch.bfloat16 and onednn and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return torch.bfloat16
    return torch.float32
