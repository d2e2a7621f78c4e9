"""The numbers of the Triton kernels' launches: query groups, tile shapes, splits, and arguments in their order."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends.plan import LOG2E, Plan, ResidueClass
from fairseq_poolingformer.attention.dropout import KeepMask
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.masks import Masks
from fairseq_poolingformer.attention.patterns import Band
from fairseq_poolingformer.attention.score_terms.disentangled import DisentangledPosition

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
# torch.get_float32_matmul_precision() in Triton's words
PRECISIONS = {"highest": "ieee", "high": "tf32x3", "medium": "tf32"}
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
    # (B, 3) int32: the token of the first key that is no padding, that behind the last, and 1 with hidden keys between
    real: Tensor | None
    global_keys: Tensor | None  # (B, G) the token in each slot, HIDDEN in slots without a token that can be seen
    global_queries: Tensor | None  # (B, G) the same of the queries

    @classmethod
    def of(cls, plan: Plan) -> Tokens:
        apart = any(isinstance(term, DisentangledPosition) for term in plan.terms)
        keys = apart, plan.key_offset, plan.key_stride
        if plan.global_queries is None or plan.global_queries is plan.masks.global_keys:
            return plan.masks.derived(_tokens_of_masks, plan.global_queries is not None, *keys)
        return _tokens_of(plan.masks, plan.global_queries, *keys)  # queries that are not the keys' tokens


def _tokens_of_masks(masks: Masks, with_queries: bool, *keys: int) -> Tokens:
    return _tokens_of(masks, masks.global_keys if with_queries else None, *keys)


def _tokens_of(masks: Masks, queries: GlobalTokens | None, apart: int, key_offset: int, key_stride: int) -> Tokens:
    """``apart``: windows hide global tokens, whose scores are others than those of neighbours."""
    padding, keys, real = masks.padding, masks.global_keys, None
    hidden = masks.hidden if apart else padding
    if hidden is not None:
        exist = torch.ones_like(hidden) if padding is None else ~padding
        place = torch.arange(exist.size(1), device=exist.device)
        first, last = torch.where(exist, place, exist.size(1)).amin(1), torch.where(exist, place, -1).amax(1)
        between = ((place > first[:, None]) & (place < last[:, None]) & hidden).any(1)
        real = torch.stack([first * key_stride + key_offset, (last + 1) * key_stride + key_offset, between], 1).int()
        hidden = hidden.int() if padding is None else hidden.int() + padding
    return Tokens(
        hidden,
        real,
        keys.index.masked_fill(masks.hidden_globals, HIDDEN) if keys else None,
        queries.index.masked_fill(queries.unused, HIDDEN) if queries else None,
    )


class Geometry(NamedTuple):
    """The numbers of a call, from which its launches follow; strides are of batch, heads and length."""

    device: torch.device
    dtype: torch.dtype
    precision: str  # of float32 products
    batch: int
    heads: int
    num_queries: int
    num_keys: int
    head_dim: int
    query: tuple[int, ...]  # strides
    key: tuple[int, ...]
    key_hidden: tuple[int, ...]
    out: tuple[int, ...]
    lse: tuple[int, ...]
    num_global_keys: int
    num_global_queries: int
    classes: tuple[ResidueClass, ...]
    query_offset: int
    key_offset: int
    key_stride: int
    scale: float
    dropout_p: float
    draw: int  # of the first group
    num_distances: int  # of the table
    grad_table: bool
    positions: bool
    unseen: tuple[int, int, int]  # num_tokens, near_left, near_right
    # strides, num_pools, band, ξ of the pools beside the tokens in one softmax
    pools: tuple[tuple[int, ...], int, Band, int] | None

    def tile_shape(self, num_queries: int, num_keys: int) -> TileShape:
        """The tile for so many queries and keys."""
        shape = tile_shape(self.head_dim, self.dtype.itemsize, self.positions)
        lookups = self.num_distances > 0 or (self.unseen[0] > 0 and self.pools is None)
        keys = max(SMALL_BLOCK, shape.keys // 2) if lookups and not self.positions else shape.keys
        return shape._replace(queries=block_for(num_queries, shape.queries), keys=block_for(num_keys, keys))

    def scores(self, group: Group, splits: int, with_unseen: bool) -> tuple[Any, ...]:
        """heads … draw: everything besides queries and keys that scores and weights depend on."""
        residues, dropout = group.residues, KeepMask(self.dropout_p)
        return (
            group.num_heads,
            splits,
            *limits(residues.band, group.num_queries, group.num_keys),
            self.key_stride,
            self.query_offset + (residues.queries.start or 0),
            self.key_offset + self.key_stride * (residues.keys.start or 0),
            residues.queries.step or 1,
            self.scale * LOG2E,
            self.num_distances // 2,
            *(self.unseen if with_unseen else (0, 0, 0)),
            dropout.dropped,
            1.0 / dropout.keep,
            group.draw,
        )

    def constants(self, group: Group, shape: TileShape) -> tuple[Any, ...]:
        """HEAD_DIM … PRECISION."""
        banded, dim = group.residues.band is not None, self.head_dim
        return dim, padded(dim), shape.queries, shape.keys, banded, self.dropout_p > 0.0, self.precision


class Group(NamedTuple):
    """The queries and keys of a residue class; or the global queries, which see every key."""

    residues: ResidueClass  # which of the call's heads, queries and keys these are, and the band between them
    draw: int  # tells the group's dropout from that of other groups
    num_heads: int
    num_queries: int
    num_keys: int
    gathered: bool = False  # its queries are the global ones

    def of_queries(self, x: Tensor) -> Tensor:
        """The group's share of a (B, H, T, …) tensor."""
        return x if self.residues.whole else x[:, self.residues.heads, self.residues.queries]

    def of_keys(self, x: Tensor) -> Tensor:
        """The group's share of a (B, H, S, …) tensor."""
        return x if self.residues.whole else x[:, self.residues.heads, self.residues.keys]

    def of_heads(self, x: Tensor) -> Tensor:
        """The group's heads of a (B, H, S, …) tensor."""
        return x if self.residues.whole else x[:, self.residues.heads]


def local_groups(geometry: Geometry) -> list[Group]:
    """One group for each residue class."""
    counts, groups = (geometry.heads, geometry.num_queries, geometry.num_keys), []
    for number, residues in enumerate(geometry.classes):
        parts = zip((residues.heads, residues.queries, residues.keys), counts, strict=True)
        heads, queries, keys = (len(range(*part.indices(count))) for part, count in parts)
        groups.append(Group(residues, geometry.draw + 2 * number, heads, queries, keys))
    return groups


def global_group(geometry: Geometry) -> Group:
    """The global queries."""
    everything = ResidueClass(slice(0, geometry.heads), slice(None), slice(None), None)
    draw = 2 * len(geometry.classes)
    return Group(everything, draw, geometry.heads, geometry.num_global_queries, geometry.num_keys, True)


def block_for(count: int, block: int) -> int:
    """``block``, or the smallest one where that holds all ``count`` positions."""
    return SMALL_BLOCK if count <= SMALL_BLOCK else block


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


def padded(head_dim: int) -> int:
    """The numbers of a vector as kernels load it: a power of two."""
    return max(SMALL_BLOCK, 1 << (head_dim - 1).bit_length())
