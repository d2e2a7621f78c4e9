"""A call as the backends that go stream by stream read it: lanes, global tokens, and the streams of each pass."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends.lanes import CHUNK, MIN_ROWS, Lane, Source, Stream, lanes
from fairseq_poolingformer.attention.call import Call, GlobalTokens
from fairseq_poolingformer.attention.dropout import KeepMask
from fairseq_poolingformer.attention.score_terms.relative_bias import ScoreTerm

LOG2E = math.log2(math.e)  # kernels take exp2 for exp: nearly three times as fast on a CPU, one instruction on a GPU


@dataclass(frozen=True)
class Plan:
    """Everything of a call but the tensors that gradients are wanted for."""

    lanes: tuple[Lane, ...]
    padding: Tensor | None
    hidden: Tensor | None  # from the window: padding, and global tokens, which are a source of their own
    hidden_globals: Tensor | None  # (B, G) slots of global tokens that hold none, or padding
    global_keys: GlobalTokens | None
    global_queries: GlobalTokens | None
    terms: tuple[ScoreTerm, ...]
    num_heads: int
    query_offset: int
    key_offset: int
    key_stride: int
    scale: float
    dropout: KeepMask

    @classmethod
    def of(cls, call: Call) -> Plan:
        _, heads, queries, _ = call.query.shape
        global_keys, padding = call.global_keys(), call.key_padding_mask
        masks = [padding, None if global_keys is None else global_keys.mask]
        masks = [mask for mask in masks if mask is not None]
        return cls(
            lanes=tuple(lanes(call.window, call.pooling, heads, call.query_offset, queries)),
            padding=padding,
            hidden=reduce(torch.logical_or, masks) if masks else None,
            hidden_globals=None if global_keys is None else global_keys.hidden(padding),
            global_keys=global_keys,
            global_queries=call.global_queries(),
            terms=call.score_terms,
            num_heads=heads,
            query_offset=call.query_offset,
            key_offset=call.key_offset,
            key_stride=call.key_stride,
            scale=call.scale,
            dropout=KeepMask.draw(call.dropout_p),
        )


@dataclass
class Buffers:
    """The tensors of a pass, in the call's own shapes; gradients only in the backward pass."""

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor
    lse: Tensor
    global_lse: Tensor
    grad_out: Tensor | None = None
    grad_query: Tensor | None = None
    grad_key: Tensor | None = None
    grad_value: Tensor | None = None


def local_streams(plan: Plan, x: Buffers) -> Iterator[Stream]:
    """One stream for each lane: its window, and the global tokens."""
    backward = x.grad_out is not None
    for number, lane in enumerate(plan.lanes):
        queries, keys = (slice(None), lane.heads, lane.queries), (slice(None), lane.heads, lane.keys)
        window = Source(
            key=x.key[keys],
            value=x.value[keys],
            index=range(x.key.size(2))[lane.keys],
            hidden=None if plan.hidden is None else plan.hidden[:, lane.keys],
            band=lane.band,
            grad_key=x.grad_key[keys] if backward else None,
            grad_value=x.grad_value[keys] if backward else None,
        )
        sources = [window]
        if plan.global_keys:
            key = plan.global_keys.gather(x.key[:, lane.heads])
            value = plan.global_keys.gather(x.value[:, lane.heads])
            dtype = softmax_dtype(key)
            sources.append(
                Source(
                    key=key,
                    value=value,
                    index=plan.global_keys.index,
                    hidden=plan.hidden_globals,
                    with_global=True,
                    chunk_width=min(CHUNK, -(-key.size(2) // MIN_ROWS) * MIN_ROWS),
                    grad_key=zeros_like(key, dtype) if backward else None,
                    grad_value=zeros_like(value, dtype) if backward else None,
                )
            )
        yield Stream(
            number=number,
            query=x.query[queries],
            index=range(x.query.size(2))[lane.queries],
            sources=sources,
            heads=lane.heads,
            out=x.out[queries],
            lse=x.lse[queries],
            grad_out=x.grad_out[queries] if backward else None,
            grad_query=x.grad_query[queries] if backward else None,
        )


def global_stream(plan: Plan, x: Buffers) -> Stream:
    """The global queries, which see every token."""
    tokens = plan.global_queries
    backward = x.grad_out is not None
    query = tokens.gather(x.query)
    source = Source(
        key=x.key,
        value=x.value,
        index=range(x.key.size(2)),
        hidden=plan.padding,
        with_global=True,
        grad_key=x.grad_key,
        grad_value=x.grad_value,
    )
    return Stream(
        number=len(plan.lanes),
        query=query,
        index=tokens.index,
        sources=[source],
        heads=slice(0, plan.num_heads),
        out=tokens.gather(x.out) if backward else torch.zeros_like(query),
        lse=x.global_lse,
        grad_out=tokens.gather(x.grad_out) if backward else None,
        grad_query=torch.zeros_like(query) if backward else None,
    )


def empty_like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """(B, H, S, D) laid out as (S, B, H, D): heads merge to (S, B, C), fairseq's layout, without a copy."""
    batch, heads, length, head_dim = x.shape
    return x.new_empty(length, batch, heads, head_dim, dtype=dtype).permute(1, 2, 0, 3)


def zeros_like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Zeros laid out as :func:`empty_like` has it."""
    return empty_like(x, dtype).zero_()


def softmax_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32
