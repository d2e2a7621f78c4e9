"""How a stream is laid out for the Triton kernels: blocks, parts, and the lines of the kernels' arguments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from fairseq_poolingformer.attention.backends.lanes import Lane
from fairseq_poolingformer.attention.backends.plan import LOG2E, Plan
from fairseq_poolingformer.attention.patterns import Band

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


# The same with tables of positions, whose products take as many registers again: some 200 bytes of them are spilled on
# compute capability 8.0 in 16 bits, and 1,200 in 32 bits with head dimensions above 64.
BLOCKS_WITH_POSITIONS = {
    2: ((64, Blocks(32, 32, 4, 2)), (128, Blocks(32, 32, 8, 1)), (256, Blocks(16, 16, 8, 1))),
    4: ((64, Blocks(16, 16, 4, 1)), (128, Blocks(16, 16, 8, 1))),
}


def block_shapes(head_dim: int, itemsize: int, with_positions: bool) -> Blocks:
    """The blocks for vectors of ``head_dim`` numbers of ``itemsize`` bytes."""
    shapes = BLOCKS_WITH_POSITIONS if with_positions else BLOCKS
    return next(blocks for greatest, blocks in shapes[itemsize] if head_dim <= greatest)


class Tokens(NamedTuple):
    """What the kernels know of padding and global tokens.

    Args:
        key_hidden: (B, S) int32, 0 where windows see a key, 1 where only global queries do, more where nobody does.
        global_keys, global_queries: (B, G) the token in each slot, HIDDEN where there is none to be seen.
    """

    key_hidden: Tensor | None
    global_keys: Tensor | None
    global_queries: Tensor | None

    @classmethod
    def of(cls, plan: Plan) -> Tokens:
        hidden, keys, queries = plan.hidden, plan.global_keys, plan.global_queries
        if hidden is not None:
            hidden = hidden.int()
            if keys and plan.padding is not None:
                hidden += plan.padding
        return cls(
            hidden,
            keys.index.masked_fill(plan.hidden_globals, HIDDEN) if keys else None,
            queries.index.masked_fill(queries.unused, HIDDEN) if queries else None,
        )


class KernelStream(NamedTuple):
    """A lane's queries, or the global queries, which see every key.

    Args:
        lane: what the tensors are of the call's.
        draw: tells its dropout from that of other streams.
        query: (B, H, U, D); for global queries the call's.
        query_token: (B, U) the global queries among them; None for all.
        key, value: (B, H, S, D), with the same strides.
        key_hidden: (B, S), see :class:`Tokens`.
        num_queries: U.
    """

    lane: Lane
    draw: int
    query: Tensor
    query_token: Tensor | None
    key: Tensor
    value: Tensor
    key_hidden: Tensor | None
    num_queries: int

    def of_queries(self, x: Tensor) -> Tensor:
        """The lane's share of a (B, H, T, …) tensor."""
        return x[:, self.lane.heads, self.lane.queries]

    def of_keys(self, x: Tensor) -> Tensor:
        """The lane's share of a (B, H, S, …) tensor."""
        return x[:, self.lane.heads, self.lane.keys]


def lane_streams(plan: Plan, tokens: Tokens, query: Tensor, key: Tensor, value: Tensor) -> Iterator[KernelStream]:
    """One stream for each lane."""
    hidden = tokens.key_hidden
    for number, lane in enumerate(plan.lanes):
        part = query[:, lane.heads, lane.queries]
        keys = (slice(None), lane.heads, lane.keys)
        lane_hidden = None if hidden is None else hidden[:, lane.keys]
        yield KernelStream(lane, 2 * number, part, None, key[keys], value[keys], lane_hidden, part.size(2))


def global_query_stream(plan: Plan, tokens: Tokens, query: Tensor, key: Tensor, value: Tensor) -> KernelStream:
    """The global queries."""
    token, draw = tokens.global_queries, 2 * len(plan.lanes)
    lane = Lane(slice(0, plan.num_heads), slice(None), slice(None), None)
    return KernelStream(lane, draw, query, token, key, value, tokens.key_hidden, token.size(1))


def global_keys_of(stream: KernelStream, key: Tensor, value: Tensor) -> KernelStream:
    """A stream that sees all of the call's ``key`` and ``value``, of which a kernel is to take the global ones."""
    heads = stream.lane.heads
    lane = replace(stream.lane, keys=slice(None), band=None)
    return stream._replace(lane=lane, draw=stream.draw + 1, key=key[:, heads], value=value[:, heads], key_hidden=None)


def blocks_of(
    num_queries: int, num_keys: int, x: Tensor, *, with_table: bool = False, with_positions: bool = False
) -> Blocks:
    """The blocks in which queries meet keys, vectors like those of ``x``, in kernels with such terms or without."""
    blocks = block_shapes(x.size(-1), x.element_size(), with_positions)
    keys = max(SMALL_BLOCK, blocks.keys // 2) if with_table and not with_positions else blocks.keys
    return blocks._replace(
        queries=block_for(num_queries, blocks.queries),
        keys=block_for(num_keys, keys),
    )


def block_for(count: int, block: int) -> int:
    """``block``, or the smallest one where that holds all ``count`` positions."""
    return SMALL_BLOCK if count <= SMALL_BLOCK else block


def launch(kernel: Any, grid: tuple[int, ...], blocks: Blocks, *arguments: Any) -> None:
    """Run a kernel, if there is anything to do."""
    if grid[0]:
        kernel[grid](*arguments, num_warps=blocks.num_warps, num_stages=blocks.num_stages, enable_fp_fusion=True)


def num_programs(x: Tensor, length: int, block: int) -> int:
    """One for each ``block`` of ``length`` positions and each head of ``x`` (B, H, …)."""
    return x.size(0) * x.size(1) * -(-length // block)


def num_parts(programs: int, steps: int) -> int:
    """How many programs share the ``steps`` of one."""
    return max(1, min(PROGRAMS // max(1, programs), steps // STEPS_PER_PART))


def limits(band: Band | None, num_queries: int, num_keys: int) -> tuple[int, int]:
    """``lowest`` and ``highest`` of the band, in 32 bits; zeros without a band.

    No distance lies outside ``-num_queries`` … ``key_stride·num_keys``, and so neither need the limits.
    """
    if band is None:
        return 0, 0
    end = band.key_stride * num_keys
    return min(max(band.lowest, -num_queries), end), min(max(band.highest, -num_queries), end)


def keys_met(band: Band | None, num_queries: int, num_keys: int, block: int) -> int:
    """How many keys a block of queries meets, at most."""
    if band is None:
        return num_keys
    lowest, highest = limits(band, num_queries, num_keys)
    return min(num_keys, (highest - lowest + block) // band.key_stride)


def queries_met(band: Band | None, num_queries: int, num_keys: int, block: int) -> int:
    """How many queries a block of keys meets, at most."""
    if band is None:
        return num_queries
    lowest, highest = limits(band, num_queries, num_keys)
    return min(num_queries, highest - lowest + block * band.key_stride)


def same_layout(x: Tensor, like: Tensor) -> bool:
    """Whether two tensors of one shape have the same strides, where these matter."""
    return all(n == 1 or s == t for n, s, t in zip(x.shape, x.stride(), like.stride(), strict=True))


def dense(x: Tensor) -> Tensor:
    """The tensor (B, H, L, D), copied unless its vectors are contiguous."""
    return x if x.stride(-1) == 1 else x.contiguous()


def strides(x: Tensor) -> tuple[int, int, int]:
    """Of batch, heads and length."""
    return x.stride()[:3]


def query_line(stream: KernelStream) -> tuple[Any, ...]:
    """query, stride_qb, stride_qh, stride_qm, query_token, num_queries."""
    return stream.query, *strides(stream.query), stream.query_token, stream.num_queries


def key_line(stream: KernelStream) -> tuple[Any, ...]:
    """key, value, stride_kb, stride_kh, stride_kn, key_hidden, stride_sb, stride_sn, num_keys."""
    key, hidden = stream.key, stream.key_hidden
    return key, stream.value, *strides(key), hidden, *((0, 0) if hidden is None else hidden.stride()), key.size(2)


def extra_line(stream: KernelStream, tokens: Tokens, key: Tensor, value: Tensor) -> tuple[Any, ...]:
    """extra_key, extra_value, stride_en, extra_token, num_extra: the global keys; the global queries see all alike."""
    token, heads = tokens.global_keys, stream.lane.heads
    if token is None or stream.query_token is not None:
        return None, None, 0, None, 0
    return key[:, heads], value[:, heads], key.stride(2), token, token.size(1)


def score_line(
    plan: Plan, stream: KernelStream, parts: int, table: Tensor | None, positions: tuple[Any, Any]
) -> tuple[Any, ...]:
    """heads … draw: what scores and weights are made with, besides queries and keys."""
    lane = stream.lane
    return (
        stream.key.size(1),
        parts,
        *limits(lane.band, stream.num_queries, stream.key.size(2)),
        plan.key_stride,
        plan.query_offset + (lane.queries.start or 0),
        plan.key_offset + plan.key_stride * (lane.keys.start or 0),
        lane.queries.step or 1,
        plan.scale * LOG2E,
        None if table is None else table[lane.heads],
        0 if table is None else table.size(1) // 2,
        *positions,
        plan.dropout.seed,
        plan.dropout.dropped,
        1.0 / plan.dropout.keep,
        stream.draw,
    )


def variant(plan: Plan, stream: KernelStream, blocks: Blocks) -> tuple[Any, ...]:
    """HEAD_DIM … DROPOUT."""
    banded, dropout = stream.lane.band is not None, plan.dropout.probability > 0.0
    return *head_sizes(stream.query), blocks.queries, blocks.keys, banded, dropout


def head_sizes(x: Tensor) -> tuple[int, int]:
    """HEAD_DIM, BLOCK_D of vectors (…, D)."""
    head_dim = x.size(-1)
    return head_dim, max(SMALL_BLOCK, 1 << (head_dim - 1).bit_length())
