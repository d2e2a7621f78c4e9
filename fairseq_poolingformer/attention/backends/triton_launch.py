"""How a stream is laid out for the Triton kernels: blocks, parts, and the kernels' arguments by their names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..biases import Pairs, ScoreTerm
from .plan import Plan
from .streams import Source, Stream

LOG2E = math.log2(math.e)
HIDDEN = 2**31 - 1  # stands for the token of a key that is not seen; beyond every token
SMALL_BLOCK = 16  # the least that tensor cores multiply
PROGRAMS = 512  # with fewer a large GPU is not full, and several share the steps of one
STEPS_PER_PART = 8  # at least; shorter parts cost more to sum up than they save


class Blocks(NamedTuple):
    """How a kernel is cut: queries and keys of a tile, warps of a program, tiles loaded ahead."""

    queries: int
    keys: int
    num_warps: int
    num_stages: int


# By bytes of a number: the greatest head dimension, and its blocks. Chosen by compiling all kernels for compute
# capabilities 8.0 and 9.0: next to no register is spilled, and 99 KiB of shared memory, the least there is, suffice.
BLOCKS = {
    2: ((64, Blocks(64, 64, 4, 2)), (128, Blocks(64, 32, 8, 2)), (256, Blocks(32, 32, 8, 2))),
    4: ((64, Blocks(32, 32, 8, 2)), (256, Blocks(16, 16, 4, 2))),
}


def block_shapes(head_dim: int, itemsize: int) -> Blocks:
    """The blocks for vectors of ``head_dim`` numbers of ``itemsize`` bytes."""
    return next(blocks for greatest, blocks in BLOCKS[itemsize] if head_dim <= greatest)


def blocks_of(stream: Stream, source: Source, *, narrow: bool) -> Blocks:
    """The blocks in which a stream's queries meet a source's keys: ``narrow`` where a kernel needs more registers."""
    num_queries, num_keys = stream.query.size(2), source.key.size(2)
    blocks = block_shapes(stream.query.size(3), stream.query.element_size())
    keys = max(SMALL_BLOCK, blocks.keys // 2) if narrow else blocks.keys
    return blocks._replace(
        queries=SMALL_BLOCK if num_queries <= SMALL_BLOCK else blocks.queries,
        keys=SMALL_BLOCK if num_keys <= SMALL_BLOCK else keys,
    )


def launch(kernel: Any, x: Tensor, block: int, parts: int, blocks: Blocks, **arguments: Any) -> None:
    """Run a kernel with one program for each ``block`` positions of ``x`` (B, H, L, D) and each part."""
    batch, heads, length, head_dim = x.shape
    programs = batch * heads * -(-length // block)
    if not programs:
        return
    with torch.cuda.device_of(x):
        kernel[(programs, parts)](
            **arguments,
            heads=heads,
            num_parts=parts,
            HEAD_DIM=head_dim,
            BLOCK_D=max(SMALL_BLOCK, 1 << (head_dim - 1).bit_length()),
            BLOCK_M=blocks.queries,
            BLOCK_N=blocks.keys,
            num_warps=blocks.num_warps,
            num_stages=blocks.num_stages,
            enable_fp_fusion=True,
        )


def num_parts(x: Tensor, block: int, steps: int) -> int:
    """How many programs share the ``steps`` of each block of ``x`` (B, H, L, D)."""
    programs = max(1, x.size(0) * x.size(1) * -(-x.size(2) // block))
    return max(1, min(PROGRAMS // programs, steps // STEPS_PER_PART))


def limits(source: Source, num_queries: int) -> tuple[int, int, int]:
    """``lowest``, ``highest`` and ``key_stride`` of the source's band, in 32 bits.

    No distance lies outside ``-num_queries`` … ``key_stride·num_keys``, and so neither need the limits.
    """
    if source.band is None:
        return 0, 0, 1
    end = source.band.key_stride * source.key.size(2)
    lowest, highest = (min(max(limit, -num_queries), end) for limit in (source.band.lowest, source.band.highest))
    return lowest, highest, source.band.key_stride


def keys_met(stream: Stream, source: Source, block: int) -> int:
    """How many keys a block of queries meets, at most."""
    num_keys = source.key.size(2)
    lowest, highest, key_stride = limits(source, stream.query.size(2))
    return num_keys if source.band is None else min(num_keys, (highest - lowest + block) // key_stride)


def queries_met(stream: Stream, source: Source, block: int) -> int:
    """How many queries a block of keys meets, at most."""
    num_queries = stream.query.size(2)
    lowest, highest, key_stride = limits(source, num_queries)
    return num_queries if source.band is None else min(num_queries, highest - lowest + block * key_stride)


def strides(name: str, length: str, x: Tensor) -> dict[str, int]:
    """The arguments ``stride_{name}b``, ``…h`` and ``…{length}`` of ``x`` (B, H, L, …)."""
    return {f"stride_{name}{letter}": x.stride(place) for place, letter in enumerate(("b", "h", length))}


def dense(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors (B, H, L, D), copied unless their vectors are contiguous and their strides the same."""
    strides = tensors[0].stride()
    if strides[-1] == 1 and all(x.stride() == strides for x in tensors):
        return tensors
    return tuple(x.contiguous() for x in tensors)


def query_arguments(plan: Plan, stream: Stream, table: Tensor | None) -> dict[str, Any]:
    """The stream's queries."""
    (query,) = dense(stream.query)
    return {
        "query": query,
        **strides("q", "m", query),
        "query_position": _positions(stream.index + plan.query_offset, query, table),
        "num_queries": query.size(2),
    }


def key_arguments(plan: Plan, source: Source, table: Tensor | None) -> dict[str, Any]:
    """The keys and values of a source."""
    key, value = dense(source.key, source.value)
    return {
        "key": key,
        "value": value,
        **strides("k", "n", key),
        "key_token": _tokens(source),
        "key_position": _positions(plan.key_stride * source.index, key, table),
        "num_keys": key.size(2),
    }


def extra_arguments(plan: Plan, sources: Sequence[Source], table: Tensor | None, blocks: Blocks) -> dict[str, Any]:
    """The second source, the gathered global keys, or none."""
    if not sources:
        names = ("extra_key", "extra_value", "extra_token", "extra_position")
        return {**dict.fromkeys(names), "num_extra": 0, "BLOCK_EXTRA": SMALL_BLOCK}
    (source,) = sources
    num_extra = source.key.size(2)
    return {
        "extra_key": source.key.contiguous(),
        "extra_value": source.value.contiguous(),
        "extra_token": _tokens(source),
        "extra_position": _positions(source.index, source.key, table),
        "num_extra": num_extra,
        "BLOCK_EXTRA": SMALL_BLOCK if num_extra <= SMALL_BLOCK else blocks.keys,
    }


def score_arguments(plan: Plan, stream: Stream, source: Source, table: Tensor | None) -> dict[str, Any]:
    """What scores and weights are made with, besides queries and keys."""
    lowest, highest, key_stride = limits(source, stream.query.size(2))
    if table is not None:
        table = (table.detach()[stream.heads] * LOG2E).contiguous()
    return {
        "lowest": lowest,
        "highest": highest,
        "key_stride": key_stride,
        "scale": plan.scale * LOG2E,
        "table": table,
        "farthest": 0 if table is None else table.size(1) // 2,
        "seed": plan.seed,
        "dropped": plan.dropped,
        "rescale": 1.0 / plan.keep,
        "draw": 2 * stream.number + (source is not stream.sources[0]),
        "BANDED": source.band is not None,
        "DROPOUT": plan.dropout_p > 0.0,
    }


def distance_table(plan: Plan, terms: Sequence[ScoreTerm]) -> Tensor | None:
    """The sum of terms that depend on head and clamped distance alone: (H, 2k + 1) float32, or None without terms."""
    if not terms:
        return None
    tables = [term.table for term in terms]
    farthest = max(table.size(1) // 2 for table in tables)
    distance = torch.arange(-farthest, farthest + 1, device=tables[0].device)
    pairs = Pairs(query_index=distance, key_index=distance.new_zeros(1))
    scores = sum(term.scores(pairs).squeeze(-1).float() for term in terms)
    return scores.expand(plan.num_heads, -1)


def diagonal_spacing(plan: Plan, stream: Stream) -> int | None:
    """Tokens between neighbouring queries where neighbouring keys are as far apart, else None."""
    if stream.number == len(plan.lanes) or plan.key_stride != 1:
        return None
    return plan.lanes[stream.number].queries.step or 1


def combine(out: Tensor, lse: Tensor, stream: Stream) -> None:
    """Make one softmax of those over parts of the keys: ``out`` (parts, B, H, U, D), ``lse`` (parts, B, H, U)."""
    lse = lse.masked_fill(lse == torch.inf, -torch.inf) / LOG2E
    total = lse.logsumexp(0)
    blind = total == -torch.inf
    weights = (lse - total.masked_fill(blind, 0.0)).exp()
    stream.out.copy_((weights.unsqueeze(-1) * out).sum(0))
    stream.lse.copy_((total * LOG2E).masked_fill_(blind, torch.inf))


def _positions(position: Tensor, x: Tensor, table: Tensor | None) -> Tensor | None:
    """The token positions, (L,) or (B, L), of ``x`` (B, H, L, D) as (B, L), where score terms ask for them."""
    return None if table is None else position.int().expand(x.size(0), x.size(2)).contiguous()


def _tokens(source: Source) -> Tensor | None:
    """(B, S) the tokens that the keys start at, as the band counts them, HIDDEN for hidden keys; None without these.

    The kernels load these numbers ahead, as they cannot a mask of bytes.
    """
    if source.hidden is None:
        return None
    stride = 1 if source.band is None else source.band.key_stride
    tokens = torch.arange(0, stride * source.key.size(2), stride, dtype=torch.int32, device=source.key.device)
    return torch.where(source.hidden, HIDDEN, tokens).contiguous()
