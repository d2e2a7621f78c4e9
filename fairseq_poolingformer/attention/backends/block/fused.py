"""The window's forward pass by PyTorch's fused attention on a CPU, which leaves the scores of 32 queries in the cache.

Neighbouring query blocks see neighbouring slices of the keys. A call has some blocks and, as views that overlap, their
slices; the blocks take the place of the heads, and the heads that of the batch, so that slices are read again at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention.backends.block.disentangled import ProductsOfBlocks
from fairseq_poolingformer.attention.backends.block.lanes import KEYS_PER_BLOCK, KeyBlock, Lane, QueryGroup, take_index
from fairseq_poolingformer.attention.backends.block.terms import Diagonals, term_of_group
from fairseq_poolingformer.attention.backends.plan import LOG2E, Plan, dense
from fairseq_poolingformer.attention.call import Pairs, ScoreTerm
from fairseq_poolingformer.attention.score_terms.disentangled import DisentangledPosition

QUERIES, KEYS = 32, 512  # which PyTorch's kernel multiplies at a time
BLOCKS = 8  # in a call
MULTIPLE = 16  # of keys: float32 numbers in the widest register


@dataclass(frozen=True)
class _Chunk:
    """Neighbouring query blocks, each with a slice of the lane's keys."""

    start: int  # the first query
    size: int  # queries of a block
    count: int  # blocks
    begin: int  # the first block's first key; before the first that exists where it is negative
    step: int  # keys from the first one of a block to that of the next; 0 where all blocks share their keys
    width: int  # keys of a block

    @property
    def rows(self) -> slice:
        """The queries that exist, and maybe some beyond the last."""
        return slice(self.start, self.start + self.count * self.size)

    @property
    def num_keys(self) -> int:
        """Keys from the first block's first to the last block's last."""
        return (self.count - 1) * self.step + self.width

    def queries(self, x: Tensor) -> Tensor:
        """The blocks of ``x`` (H, T, D): (H, count, size, D), zeros after the last query."""
        return _filled(x[:, self.rows], 0, self.count * self.size, 0.0).unflatten(1, (self.count, self.size))

    def filled(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """The keys that exist, ``x`` (H, s, D), and ``fill`` for the others: (H, num_keys, D)."""
        return _filled(x, min(max(0, -self.begin), self.num_keys), self.num_keys, fill)

    def blocks(self, x: Tensor) -> Tensor:
        """Slices of :meth:`filled` for the blocks: (H, count or 1, width, D)."""
        # overlapping views, nothing is copied; blocks that share their keys have one of as many keys as there are
        return x.unfold(1, self.width, max(self.step, 1)).transpose(2, 3)

    def mask(self, lane: Lane) -> Tensor:
        """The band's mask: (size, width) for every block, or (1, count, size, width)."""
        keys, dtype = KeyBlock(self.begin, self.begin + self.width, 0), lane.key.dtype
        num_queries = self.size if self.step else self.count * self.size
        mask = lane.mask(self.start, num_queries, keys, dtype)
        mask = lane.key.new_zeros(num_queries, self.width) if mask is None else mask
        return mask if self.step else mask.view(1, self.count, self.size, self.width)


def _filled(x: Tensor, before: int, length: int, fill: float) -> Tensor:
    """``x`` (H, n, D) as (H, length, D), ``before`` rows of ``fill`` before it and others after it."""
    after = length - before - x.size(1)
    return F.pad(x, (0, 0, before, after), value=fill) if before or after else x


def can_run(plan: Plan, group: QueryGroup) -> bool:
    """Whether a group of a window can be computed here."""
    query, band = group.query, group.lanes[0].band
    return (
        query.device.type == "cpu"
        and query.dtype in (torch.float32, torch.float64)
        and band is not None
        and band.key_stride <= QUERIES  # a block has whole strides of queries, see _sizes
        and not (plan.terms and band.highest - band.lowest >= KEYS_PER_BLOCK)
        and all(isinstance(term, DisentangledPosition) for term in plan.terms)
        and not plan.dropout.probability
    )


def forward(plan: Plan, group: QueryGroup) -> None:
    """Write ``group.out`` and ``group.lse``."""
    window, *others = group.lanes
    chunks = list(_chunks(window, group.query.size(2), may_share=not plan.terms))
    terms = [_disentangled(plan, group, term) for term in plan.terms]
    for row in range(group.query.size(0)):
        whole = [_whole(lane, row) for lane in others]
        for chunk in chunks:
            query = chunk.queries(group.query[row])
            parts = []
            if (slices := _window(window, chunk, row)) is not None:
                key, value, mask = slices
                scores = [term.scores(query, key, chunk.width, plan.scale) for term in terms]
                parts.append(_attend(plan, query, chunk.blocks(key), chunk.blocks(value), mask, scores))
            for lane, (key, value, mask) in zip(others, whole, strict=True):
                scores = _global_scores(plan, group, chunk, query, lane.index[row : row + 1], key)
                parts.append(_attend(plan, query, key.unsqueeze(1), value.unsqueeze(1), mask, scores))
            if not parts:
                continue
            out, lse = reduce(_merged, parts)
            lse.masked_fill_(lse == -torch.inf, torch.inf)  # the backward pass takes exp2(score − lse), 0 there
            for x, blocks in ((group.out[row], out), (group.lse[row].unsqueeze(-1), lse)):
                target = x[:, chunk.rows]
                target.copy_(blocks.flatten(1, 2)[:, : target.size(1)])


def _sizes(lane: Lane) -> tuple[int, int, int, int]:
    """Queries of a block, keys from one block's first to the next one's, query 0's first key, keys of a block."""
    band = lane.band
    # whole strides of queries, so that the next block's keys begin a whole number of keys further
    size = QUERIES // band.key_stride * band.key_stride
    width = -(-lane.width(size) // MULTIPLE) * MULTIPLE
    return size, size // band.key_stride, -(-band.lowest // band.key_stride), width


def _chunks(lane: Lane, num_queries: int, may_share: bool = True) -> Iterator[_Chunk]:
    """Chunks whose blocks are the same however many queries and keys follow, so that all products round alike."""
    # only whole blocks of the kernel beyond the last key are left out
    size, step, first, width = _sizes(lane)
    for start in range(0, num_queries, BLOCKS * size):
        count, begin = min(BLOCKS, -(-(num_queries - start) // size)), first + start // size * step
        end = begin + (BLOCKS - 1) * step + width
        # Of a wide window's first queries all blocks end within one width: they share the keys 0 … end, since slices of
        # their own would mostly lie before the first key.
        if may_share and end <= width:
            begin, chunk_step, chunk_width = 0, 0, max(0, end)
        else:
            chunk_step, chunk_width = step, width
        there = -(-(lane.key.size(2) - begin) // KEYS) * KEYS
        yield _Chunk(start, size, count, begin, chunk_step, max(0, min(there, chunk_width)))


def _window(lane: Lane, chunk: _Chunk, row: int) -> tuple[Tensor, Tensor, Tensor] | None:
    """The chunk's keys and values (H, num_keys, D), and a mask of their blocks; None where none is seen."""
    if chunk.width == 0:
        return None
    there = slice(max(0, chunk.begin), max(0, min(chunk.begin + chunk.num_keys, lane.key.size(2))))
    key, value, hidden = lane.key[row, :, there], lane.value[row, :, there], lane.hidden_in(there)
    mask = chunk.mask(lane)
    if len(pools := lane.partial_in(there)):
        queries = range(chunk.start, chunk.start + chunk.count * chunk.size)
        correction = mask.new_zeros(len(queries), chunk.num_keys)
        of_row = lane.correction(queries, pools, mask.dtype, rows=slice(row, row + 1))
        correction[:, pools - chunk.begin] = of_row[0]
        of_blocks = correction.unflatten(0, (chunk.count, chunk.size))
        keys = (slice(block * chunk.step, block * chunk.step + chunk.width) for block in range(chunk.count))
        mask = mask + torch.stack([x[:, seen] for x, seen in zip(of_blocks, keys, strict=True)])[None]
    if hidden is not None:
        hidden = hidden[row]
        key = key.masked_fill(hidden[:, None], 0.0)  # a product that overflows would not be hidden
        value = value.masked_fill(hidden[:, None], 0.0)  # 0·NaN is NaN
    elif key.size(1) < chunk.num_keys:
        hidden = torch.zeros(key.size(1), dtype=torch.bool)
    if hidden is not None:
        if hidden.all():
            return None
        mask = mask.masked_fill(chunk.blocks(chunk.filled(hidden[None, :, None], True)).transpose(2, 3), -torch.inf)
    return chunk.filled(key), chunk.filled(value), mask


def _disentangled(plan: Plan, group: QueryGroup, term: ScoreTerm) -> ProductsOfBlocks:
    """The term in the window, for blocks of any chunk."""
    size, _, first, width = _sizes(group.lanes[0])
    queries, keys, term = group.index, group.lanes[0].index, term_of_group(term, group.heads, plan.num_heads)
    assert isinstance(queries, range)
    assert isinstance(keys, range)
    assert isinstance(term, DisentangledPosition)
    distance = plan.query_offset + queries.start - keys.start
    return ProductsOfBlocks.of(term, Diagonals(first, first + width - size, distance, -queries.step))


def _global_scores(
    plan: Plan, group: QueryGroup, chunk: _Chunk, query: Tensor, index: range | Tensor, key: Tensor
) -> list[Tensor]:
    """The terms (H, count, size, s) between the chunk's queries and global tokens (H, s, D) at ``index`` (1, G)."""
    queries = take_index(group.index, chunk.start, chunk.count * chunk.size)
    keys = take_index(index, 0, key.size(1))
    pairs = Pairs.of(plan, queries, keys, query.flatten(1, 2)[None], key[None], with_global=True)
    terms = [term_of_group(term, group.heads, plan.num_heads) for term in plan.terms]
    return [term.scores(pairs)[0].unflatten(1, (chunk.count, chunk.size)) for term in terms]


def _whole(lane: Lane, row: int) -> tuple[Tensor, Tensor, Tensor]:
    """All keys and values of a lane without a band (H, s, D), and a mask."""
    after = -lane.key.size(2) % MULTIPLE
    hidden = F.pad(lane.hidden[row], (0, after), value=True)
    key, value = (F.pad(x[row], (0, 0, 0, after)).masked_fill(hidden[:, None], 0.0) for x in (lane.key, lane.value))
    return key, value, key.new_zeros(1, key.size(1)).masked_fill_(hidden, -torch.inf)


def _attend(
    plan: Plan, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scores: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """Outputs (H, count, size, D) of query blocks, and base-2 logarithms (…, 1) of the sums of weights, or -inf."""
    key, value = (x.expand(-1, query.size(1), -1, -1) for x in (key, value))
    # The kernel takes the last dimension of all four for dense, and its public function, which returns no logarithms,
    # asks: the backend makes queries, keys and values so.
    bias = dense(reduce(Tensor.add_, [*scores, mask]))
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, attn_mask=bias, scale=plan.scale
    )
    # the kernel's logarithm is natural, and of a query without any key it is not −inf
    blind = (mask == -torch.inf).all(-1, keepdim=True)  # (size or 1, 1) or (1, count, size, 1)
    return out, lse.unsqueeze(-1).mul_(LOG2E).masked_fill_(blind, -torch.inf)


def _merged(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The result of :func:`_attend` over the keys of both."""
    # of whole blocks: the last numbers of a tensor, where they are less than a register, round differently
    (out, lse), (other_out, other_lse) = one, other
    # (2^a·out + 2^b·other) / (2^a + 2^b), in which the other's share is 1 / (1 + 2^(a − b)) = sigmoid((b − a)·ln 2)
    share = (other_lse - lse).div_(LOG2E).sigmoid_().nan_to_num_(0.0)  # NaN where neither sees a key
    return torch.lerp(out, other_out, share), torch.logaddexp2(lse, other_lse)
