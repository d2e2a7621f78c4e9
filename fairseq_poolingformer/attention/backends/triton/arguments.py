"""The arguments of the Triton kernels: query groups, tile shapes, splits, and lines of arguments in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from fairseq_poolingformer.attention.backends.plan import LOG2E, Plan, ResidueClass
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.masks import Masks
from fairseq_poolingformer.attention.patterns import Band
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens

HIDDEN = 2**31 - 1  # the token of a key that is not seen; beyond every real token
SMALL_BLOCK = 16  # the least that tensor cores multiply
PROGRAMS = 512  # fewer programs do not fill a large GPU: then several of them split the steps of one
STEPS_PER_SPLIT = 8  # at least; shorter splits cost more to sum up than they save


class TileShape(NamedTuple):
    """Queries and keys of a tile, warps of a program, and tiles that a program loads ahead."""

    queries: int
    keys: int
    num_warps: int
    num_stages: int


# By bytes of a number: the greatest head dimension, and its tile: the fastest of several on an H200, of those that
# compiled for compute capability 8.0 fit 99 KiB of shared memory, which is what most GPUs have.
TILE_SHAPES = {
    2: ((128, TileShape(64, 64, 4, 2)), (256, TileShape(32, 32, 4, 2))),
    4: ((64, TileShape(32, 32, 4, 2)), (256, TileShape(16, 16, 4, 2))),
}
# With tables of positions, whose products take as many registers again: on compute capability 8.0 the kernels spill
# some 200 bytes in 16 bits, and 1,200 bytes in 32 bits with head dimensions above 64.
TILE_SHAPES_WITH_POSITIONS = {
    2: ((64, TileShape(32, 32, 4, 2)), (128, TileShape(32, 32, 8, 1)), (256, TileShape(16, 16, 8, 1))),
    4: ((64, TileShape(16, 16, 4, 1)), (128, TileShape(16, 16, 8, 1))),
}


def tile_shape(head_dim: int, itemsize: int, with_positions: bool) -> TileShape:
    """The tile for vectors of ``head_dim`` numbers of ``itemsize`` bytes."""
    shapes = TILE_SHAPES_WITH_POSITIONS if with_positions else TILE_SHAPES
    return next(shape for greatest, shape in shapes[itemsize] if head_dim <= greatest)


class Tokens(NamedTuple):
    """Padding and global tokens as the kernels read them."""

    # (B, S) int32, 0 where windows see a key, 1 where only global queries see it, more where no query does
    key_hidden: Tensor | None
    global_keys: Tensor | None  # (B, G) the token in each slot, HIDDEN in slots without a token that can be seen
    global_queries: Tensor | None  # (B, G) the same of the queries

    @classmethod
    def of(cls, plan: Plan) -> Tokens:
        if plan.global_queries is None or plan.global_queries is plan.masks.global_keys:
            return plan.masks.derived(_tokens_of_masks, plan.global_queries is not None)
        return _tokens_of(plan.masks, plan.global_queries)  # queries that are not the keys' tokens


def _tokens_of_masks(masks: Masks, with_queries: bool) -> Tokens:
    return _tokens_of(masks, masks.global_keys if with_queries else None)


def _tokens_of(masks: Masks, queries: GlobalTokens | None) -> Tokens:
    hidden, keys = masks.hidden, masks.global_keys
    if hidden is not None:
        hidden = hidden.int()
        if keys and masks.padding is not None:
            hidden += masks.padding
    return Tokens(
        hidden,
        keys.index.masked_fill(masks.hidden_globals, HIDDEN) if keys else None,
        queries.index.masked_fill(queries.unused, HIDDEN) if queries else None,
    )


class KernelGroup(NamedTuple):
    """The queries and keys of a residue class; or the global queries, which see every key."""

    residues: ResidueClass  # which of the call's heads, queries and keys these are, and the band between them
    draw: int  # tells the group's dropout from that of other groups
    query: Tensor  # (B, H, U, D); all of the call's queries where some of them are global queries
    query_token: Tensor | None  # (B, U) which queries the group has; None for all
    key: Tensor  # (B, H, S, D), with the same strides
    value: Tensor  # (B, H, S, D), with the same strides
    key_hidden: Tensor | None  # (B, S), see :class:`Tokens`
    num_queries: int  # U

    def of_queries(self, x: Tensor) -> Tensor:
        """The group's share of a (B, H, T, …) tensor."""
        return x if self.residues.whole else x[:, self.residues.heads, self.residues.queries]

    def of_keys(self, x: Tensor) -> Tensor:
        """The group's share of a (B, H, S, …) tensor."""
        return x if self.residues.whole else x[:, self.residues.heads, self.residues.keys]


def local_groups(plan: Plan, tokens: Tokens, query: Tensor, key: Tensor, value: Tensor) -> Iterator[KernelGroup]:
    """One group for each residue class."""
    for number, residues in enumerate(plan.classes):
        if residues.whole:
            yield KernelGroup(residues, 2 * number, query, None, key, value, tokens.key_hidden, query.size(2))
            return
        queries = query[:, residues.heads, residues.queries]
        keys = (slice(None), residues.heads, residues.keys)
        hidden = None if tokens.key_hidden is None else tokens.key_hidden[:, residues.keys]
        yield KernelGroup(residues, 2 * number, queries, None, key[keys], value[keys], hidden, queries.size(2))


def global_group(plan: Plan, tokens: Tokens, query: Tensor, key: Tensor, value: Tensor) -> KernelGroup:
    """The global queries."""
    token, draw = tokens.global_queries, 2 * len(plan.classes)
    everything = ResidueClass(slice(0, plan.num_heads), slice(None), slice(None), None)
    return KernelGroup(everything, draw, query, token, key, value, tokens.key_hidden, token.size(1))


def global_keys_of(group: KernelGroup, key: Tensor, value: Tensor) -> KernelGroup:
    """The group with the call's ``key`` and ``value``, from which a kernel takes the global ones."""
    residues = replace(group.residues, keys=slice(None), band=None)
    key, value = key[:, residues.heads], value[:, residues.heads]
    return group._replace(draw=group.draw + 1, residues=residues, key=key, value=value, key_hidden=None)


def tile_shape_of(
    num_queries: int, num_keys: int, x: Tensor, *, with_lookups: bool = False, with_positions: bool = False
) -> TileShape:
    """The tile for so many queries and keys, vectors like those of ``x``, with score terms or without."""
    shape = tile_shape(x.size(-1), x.element_size(), with_positions)
    keys = max(SMALL_BLOCK, shape.keys // 2) if with_lookups and not with_positions else shape.keys
    return shape._replace(queries=block_for(num_queries, shape.queries), keys=block_for(num_keys, keys))


def block_for(count: int, block: int) -> int:
    """``block``, or the smallest one where that holds all ``count`` positions."""
    return SMALL_BLOCK if count <= SMALL_BLOCK else block


def num_programs(x: Tensor, length: int, block: int) -> int:
    """The number of programs: one for each ``block`` of ``length`` positions and each head of ``x`` (B, H, …)."""
    return x.size(0) * x.size(1) * -(-length // block)


def num_splits(programs: int, steps: int) -> int:
    """How many programs split the ``steps`` of one among them."""
    return max(1, min(PROGRAMS // max(1, programs), steps // STEPS_PER_SPLIT))


def limits(band: Band | None, num_queries: int, num_keys: int) -> tuple[int, int]:
    """``lowest`` and ``highest`` of the band, in 32 bits; zeros without a band.

    All distances lie within ``-num_queries`` … ``key_stride·num_keys``, and so may the limits.
    """
    if band is None:
        return 0, 0
    end = band.key_stride * num_keys
    return min(max(band.lowest, -num_queries), end), min(max(band.highest, -num_queries), end)


def keys_met(band: Band | None, num_queries: int, num_keys: int, block: int) -> int:
    """The most keys that a block of queries meets."""
    if band is None:
        return num_keys
    lowest, highest = limits(band, num_queries, num_keys)
    return min(num_keys, (highest - lowest + block) // band.key_stride)


def queries_met(band: Band | None, num_queries: int, num_keys: int, block: int) -> int:
    """The most queries that a block of keys meets."""
    if band is None:
        return num_queries
    lowest, highest = limits(band, num_queries, num_keys)
    return min(num_queries, highest - lowest + block * band.key_stride)


def same_layout(x: Tensor, like: Tensor) -> bool:
    """Whether two tensors of one shape have the same strides in every dimension longer than 1."""
    return all(n == 1 or s == t for n, s, t in zip(x.shape, x.stride(), like.stride(), strict=True))


def strides(x: Tensor) -> tuple[int, ...]:
    """The strides of batch, heads and length."""
    return x.stride()[:3]


def query_line(group: KernelGroup) -> tuple[Any, ...]:
    """query, stride_qb, stride_qh, stride_qm, query_token, num_queries."""
    return group.query, *strides(group.query), group.query_token, group.num_queries


def key_line(group: KernelGroup) -> tuple[Any, ...]:
    """key, value, stride_kb, stride_kh, stride_kn, key_hidden, stride_sb, stride_sn, num_keys."""
    key, hidden = group.key, group.key_hidden
    return key, group.value, *strides(key), hidden, *((0, 0) if hidden is None else hidden.stride()), key.size(2)


def extra_line(group: KernelGroup, tokens: Tokens, key: Tensor, value: Tensor) -> tuple[Any, ...]:
    """extra_key, extra_value, stride_en, extra_token, num_extra: the global keys, for queries that are not global."""
    token, heads = tokens.global_keys, group.residues.heads
    if token is None or group.query_token is not None:
        return None, None, 0, None, 0
    return key[:, heads], value[:, heads], key.stride(2), token, token.size(1)


def pool_line(pools: KernelGroup | None, stride: int) -> tuple[Any, ...]:
    """pool_key, pool_value, stride_pb, stride_ph, stride_pn, num_pools, pool_lowest, pool_highest, pool_size."""
    if pools is None:
        return None, None, 0, 0, 0, 0, 0, 0, 0
    key, num_pools = pools.key, pools.key.size(2)
    return (
        key,
        pools.value,
        *strides(key),
        num_pools,
        *limits(pools.residues.band, pools.num_queries, num_pools),
        stride,
    )


def score_line(
    plan: Plan, group: KernelGroup, splits: int, table: Tensor | None, positions: tuple[Any, Any]
) -> tuple[Any, ...]:
    """heads … draw: everything besides queries and keys that scores and weights depend on."""
    residues, dropout = group.residues, plan.dropout
    return (
        group.key.size(1),
        splits,
        *limits(residues.band, group.num_queries, group.key.size(2)),
        plan.key_stride,
        plan.query_offset + (residues.queries.start or 0),
        plan.key_offset + plan.key_stride * (residues.keys.start or 0),
        residues.queries.step or 1,
        plan.scale * LOG2E,
        None if table is None else table[residues.heads],
        0 if table is None else table.size(1) // 2,
        *unseen_line(plan.unseen),
        *positions,
        dropout.seed,
        dropout.dropped,
        1.0 / dropout.keep,
        group.draw,
    )


def unseen_line(unseen: UnseenTokens | None) -> tuple[Any, ...]:
    """before, num_tokens, near_left, near_right."""
    if unseen is None:
        return None, 0, 0, 0
    most = unseen.counted.size(1)  # as far as any two tokens are apart, in 32 bits
    return unseen.before, most, min(unseen.window.left, most), min(unseen.window.right, most)


def variant(plan: Plan, group: KernelGroup, shape: TileShape) -> tuple[Any, ...]:
    """HEAD_DIM … DROPOUT."""
    banded, dropout = group.residues.band is not None, plan.dropout.probability > 0.0
    return *head_sizes(group.query), shape.queries, shape.keys, banded, dropout


def head_sizes(x: Tensor) -> tuple[int, int]:
    """HEAD_DIM, BLOCK_D of vectors (…, D)."""
    return x.size(-1), padded(x.size(-1))


def padded(head_dim: int) -> int:
    """The numbers of a vector as kernels load it: a power of two."""
    return max(SMALL_BLOCK, 1 << (head_dim - 1).bit_length())
