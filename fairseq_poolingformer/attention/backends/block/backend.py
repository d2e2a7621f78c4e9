"""Attention a block of queries at a time, in linear memory, on any device.

Each block multiplies with the slice of keys that it can see: no unfolded copy of the keys, no stored scores. The
backward pass recomputes the probabilities from the saved log-denominators (Dao et al. 2022, FlashAttention, alg. 4).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_poolingformer.attention.backends.block.disentangled import DisentangledOfStream
from fairseq_poolingformer.attention.backends.block.terms import TermOfStream, Tile
from fairseq_poolingformer.attention.backends.lanes import MIN_ROWS, Chunk, Source, Stream, add_bmm, take, take_index
from fairseq_poolingformer.attention.backends.plan import (
    LOG2E,
    Buffers,
    Plan,
    global_stream,
    local_streams,
    softmax_dtype,
    zeros_like,
)
from fairseq_poolingformer.attention.backends.term_gradients import TermGradients, tensors_of
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.score_terms.disentangled import DisentangledPosition
from fairseq_poolingformer.attention.score_terms.relative_bias import Pairs


def why_not(call: Call) -> str | None:
    """It can run every call."""
    return None


def run(call: Call) -> Tensor:
    """See :func:`fairseq_poolingformer.attention.band_attention`."""
    return _BlockAttention.apply(Plan.of(call), call.query, call.key, call.value, *tensors_of(call.score_terms))


class _BlockAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan: Plan, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor):
        batch, heads, queries, _ = query.shape
        out = zeros_like(query)
        lse = query.new_full((batch, heads, queries), torch.inf, dtype=softmax_dtype(query))
        slots = plan.global_queries.num_slots if plan.global_queries else 0
        global_lse = lse.new_full((batch, heads, slots), torch.inf)
        buffers = Buffers(query, key, value, out, lse, global_lse)
        with torch.autocast(query.device.type, enabled=False):
            for stream in local_streams(plan, buffers):
                _forward(plan, stream)
            if plan.global_queries:
                stream = global_stream(plan, buffers)
                _forward(plan, stream)
                plan.global_queries.put(out, stream.out)
                # the window had its say on these rows too: without weight in the backward pass it is taken back
                lse[plan.global_queries.row, :, plan.global_queries.token] = torch.inf
        ctx.plan = plan
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
        terms = TermGradients(plan.terms, tensors, ctx.needs_input_grad[4:])
        with torch.autocast(query.device.type, enabled=False):
            for stream in local_streams(plan, buffers):
                _backward(plan, stream, terms)
                if plan.global_keys:
                    heads, extra = stream.heads, stream.sources[1]
                    plan.global_keys.add(grad_key[:, heads], extra.grad_key)
                    plan.global_keys.add(grad_value[:, heads], extra.grad_value)
            if plan.global_queries:
                stream = global_stream(plan, buffers)
                _backward(plan, stream, terms)
                plan.global_queries.put(grad_query, stream.grad_query)
        grads = grad_query.to(query.dtype), grad_key.to(key.dtype), grad_value.to(value.dtype)
        return None, *grads, *terms.results()


@dataclass(frozen=True)
class _Block:
    """Some of a stream's queries, to be multiplied with one of its sources.

    Args:
        number: tells the blocks of a call apart.
        start: the first query.
        size: queries of a whole block.
        count: queries of this one.
    """

    stream: Stream
    source: Source
    number: tuple[int, int, int]
    start: int
    size: int
    count: int

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + self.count)

    def take(self, x: Tensor, dtype: torch.dtype, fill: float = 0.0) -> Tensor:
        """The block of ``x`` (B, H, U, D): (B·H, t, D), with at least MIN_ROWS rows, ``fill`` in those made up."""
        return take(x, self.start, self.count, max(self.count, MIN_ROWS), dtype, fill)

    def write(self, x: Tensor, values: Tensor) -> None:
        """Set the block of ``x`` (B, H, U, D) to ``values`` (B·H, t, D)."""
        x[:, :, self.rows] = values[:, : self.count].unflatten(0, x.shape[:2])

    def add(self, x: Tensor, values: Tensor) -> None:
        """Add ``values`` (B·H, t, D) to the block of ``x`` (B, H, U, D)."""
        x[:, :, self.rows] += values[:, : self.count].unflatten(0, x.shape[:2])

    def chunks(self) -> Iterator[Chunk]:
        """The keys that the block's queries are multiplied with."""
        return self.source.chunks(self.start, self.size)


def _blocks(stream: Stream) -> Iterator[_Block]:
    """The blocks before the last source, and so on to the first, which most of the weight falls to."""
    length = stream.query.size(2)
    for number, source in reversed(list(enumerate(stream.sources))):
        size = source.block_size()
        for start in range(0, length, size):
            yield _Block(stream, source, (stream.number, number, start), start, size, min(size, length - start))


def _forward(plan: Plan, stream: Stream) -> None:
    """Write ``stream.out`` and ``stream.lse`` (to base 2); the softmax is kept up as chunks of keys come by."""
    dtype, wide = _matmul_dtype(stream.query), softmax_dtype(stream.query)
    terms = _terms_of(plan, stream)
    for block in _blocks(stream):
        query = block.take(stream.query, dtype)
        # what earlier sources left; where that is nothing, the smallest finite number, from which -inf can be taken
        top = block.take(stream.lse.unsqueeze(-1), wide, torch.inf)
        blind = top == torch.inf
        top, total = top.masked_fill(blind, torch.finfo(wide).min), (~blind).to(wide)
        mixed = block.take(stream.out, wide) * plan.dropout.keep
        for number, chunk in enumerate(block.chunks()):
            weights = _scores(plan, terms, block, chunk, query)
            higher = torch.maximum(top, weights.amax(-1, keepdim=True))
            weights.sub_(higher).exp2_()
            fade = top.sub_(higher).exp2_()
            total.mul_(fade).add_(weights.sum(-1, keepdim=True))
            if plan.dropout.probability:
                weights.mul_(plan.dropout.like(weights, (*block.number, number)))
            product = torch.bmm(weights.to(dtype), chunk.take(block.source.value, dtype)).to(wide)
            mixed = torch.addcmul(product, mixed, fade)
            top = higher
        blind = total == 0.0
        block.write(stream.out, mixed.div_(total.masked_fill(blind, 1.0).mul_(plan.dropout.keep)))
        block.write(stream.lse.unsqueeze(-1), total.log2_().add_(top).masked_fill_(blind, torch.inf))


def _backward(plan: Plan, stream: Stream, gradients: TermGradients) -> None:
    """Write ``stream.grad_query`` and add to the sources' and the terms' gradients."""
    dtype, wide = _matmul_dtype(stream.query), softmax_dtype(stream.query)
    terms = _terms_of(plan, stream, gradients)
    for block in _blocks(stream):
        source = block.source
        query, grad_out = block.take(stream.query, dtype), block.take(stream.grad_out, dtype)
        lse = block.take(stream.lse.unsqueeze(-1), wide, torch.inf)
        delta = (grad_out.to(wide) * block.take(stream.out, wide)).sum(-1, keepdim=True)
        grad_out = grad_out / plan.dropout.keep
        grad_query = torch.zeros_like(query, dtype=wide)
        for number, chunk in enumerate(block.chunks()):
            weights = _scores(plan, terms, block, chunk, query).sub_(lse).exp2_()
            grad_scores = torch.bmm(grad_out, chunk.take(source.value, dtype).transpose(1, 2)).to(wide)
            kept = weights
            if plan.dropout.probability:
                mask = plan.dropout.like(weights, (*block.number, number))
                kept = weights * mask
                grad_scores.mul_(mask)
            chunk.add(source.grad_value, kept.to(dtype).transpose(1, 2), grad_out)
            grad_scores.sub_(delta).mul_(weights)
            if terms:
                tile, shape = _tile(plan, block, chunk, query), source.key.shape[:2]
                grad_key = source.grad_key[:, :, chunk.keys]
                for term in terms:
                    term.add_gradients(grad_scores.unflatten(0, shape), tile, grad_query.unflatten(0, shape), grad_key)
            grad_scores = grad_scores.to(dtype)
            chunk.add(source.grad_key, grad_scores.transpose(1, 2), query, plan.scale)
            add_bmm(grad_query, grad_scores, chunk.take(source.key, dtype), plan.scale)
        block.add(stream.grad_query, grad_query)
    for term in terms:
        term.finish()


def _terms_of(plan: Plan, stream: Stream, gradients: TermGradients | None = None) -> list[TermOfStream]:
    """The call's score terms in a stream; with ``gradients`` for the backward pass."""
    return [
        (DisentangledOfStream if isinstance(term, DisentangledPosition) else TermOfStream)(
            term, stream.heads, plan.num_heads, gradients, number
        )
        for number, term in enumerate(plan.terms)
    ]


def _scores(plan: Plan, terms: list[TermOfStream], block: _Block, chunk: Chunk, query: Tensor) -> Tensor:
    """Scaled, masked scores of one block against one chunk, to base 2: (B·H, t, s), -inf where a key is not seen."""
    source, dtype, wide = block.source, query.dtype, softmax_dtype(block.source.key)
    key = chunk.take(source.key, dtype).transpose(1, 2)
    mask = source.mask(block.start, query.size(1), chunk, wide)
    if mask is not None and dtype == wide:
        scores = torch.baddbmm(mask, query, key, alpha=plan.scale * LOG2E)
    else:
        # scaled before it is rounded: q·k itself overflows float16 √D times sooner
        scores = torch.bmm(query * plan.scale, key).to(wide)
        scores = scores.mul_(LOG2E) if mask is None else torch.add(mask, scores, alpha=LOG2E, out=scores)
    by_row = scores.unflatten(0, source.key.shape[:2])
    if terms:
        tile = _tile(plan, block, chunk, query)
        for term in terms:
            term.add_scores(by_row, tile)
    hidden = source.hidden_in(chunk.keys)
    if hidden is not None:
        by_row[..., : chunk.size].masked_fill_(hidden[:, None, None, :], -torch.inf)
    if chunk.size < chunk.stop - chunk.start:
        by_row[..., chunk.size :] = -torch.inf
    return scores


def _tile(plan: Plan, block: _Block, chunk: Chunk, query: Tensor) -> Tile:
    """One block, with its ``query`` (B·H, t, D), against one chunk, as score terms see it."""
    stream, source, key = block.stream, block.source, chunk.take(block.source.key, query.dtype)
    pairs = Pairs(
        query_index=take_index(stream.index, block.start, query.size(1)),
        key_index=take_index(source.index, chunk.start, key.size(1)),
        query_offset=plan.query_offset,
        key_offset=plan.key_offset,
        key_stride=plan.key_stride,
        query=query.unflatten(0, source.key.shape[:2]),
        key=key.unflatten(0, source.key.shape[:2]),
        scale=plan.scale,
        with_global=source.with_global,
    )
    return Tile(pairs, source, block.start, chunk.start)


def _matmul_dtype(x: Tensor) -> torch.dtype:
    """What to multiply in: the tensor's own dtype where the device has units for it, else float32."""
    if x.device.type != "cpu" or x.dtype not in (torch.float16, torch.bfloat16):
        return x.dtype
    onednn = torch.backends.mkldnn.is_available()
    if x.dtype == torch.bfloat16 and onednn and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return torch.bfloat16
    return torch.float32
