"""How the block backend walks a call: groups of queries, the lanes that a group attends to, and blocks of both.

A *query group* is a set of queries that attend to the same lanes. A *lane* is one source of keys: those of a residue
class, with a band (the sliding window), or the global tokens, which every query sees. The queries of a residue class
are a group, and so are the global queries. A *query block* is multiplied with one *key block* of a lane at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention.backends.plan import Plan, softmax_dtype, zeros_like
from fairseq_poolingformer.attention.patterns import Band
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens

SCORES_PER_BLOCK = 2**16  # of one head
WASTE = 0.5  # upper bound on masked keys per visible key in a block
MIN_BLOCK, MAX_BLOCK = 64, 512  # queries
KEYS_PER_BLOCK = 512
MIN_ROWS = 8  # smaller products round differently on some CPUs; results must not depend on how the last block falls


@dataclass(frozen=True)
class KeyBlock:
    """Neighbouring keys of a lane that one query block is multiplied with."""

    start: int  # the first key
    stop: int  # may lie beyond the last key, and zeros then fill up the width
    size: int  # how many of them exist

    @property
    def keys(self) -> slice:
        """The keys that exist."""
        return slice(self.start, self.start + self.size)

    def take(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """The block of keys or values ``x`` (B, H, S, D): (B·H, s, D), zeros beyond the last."""
        return take(x, self.start, self.size, self.stop - self.start, dtype)

    def add(self, x: Tensor, a: Tensor, b: Tensor, scale: float = 1.0) -> None:
        """Add ``scale·(a @ b)``, a (B·H, s, t), b (B·H, t, D), to the block of the gradients ``x`` (B, H, S, D)."""
        target, a = x[:, :, self.keys], a[:, : self.size]  # without the rows that only fill up the width
        batch, heads = target.shape[:2]
        # batch and heads are one dimension in memory, as in fairseq's layout: the product adds to the gradient itself
        if batch == 1 or target.stride(0) == heads * target.stride(1):
            add_bmm(target.flatten(0, 1), a, b, scale)
        else:
            target.add_(torch.bmm(a, b).view(target.shape).to(target.dtype), alpha=scale)


@dataclass
class Lane:
    """One source of keys and values for a group of queries."""

    key: Tensor  # (B, H, S, D)
    value: Tensor  # (B, H, S, D)
    index: range | Tensor  # a range of S or (B, S), each key's index in the call
    # (B, S) bool, True at keys that no query of the group sees in this lane; None without any
    hidden: Tensor | None = None
    band: Band | None = None  # which keys each query sees; None for all
    with_global: bool = False  # whether every pair of a query and a key has a global token; else no pair has one
    block_width: int = KEYS_PER_BLOCK  # keys multiplied at a time, at most
    # the score of pooled keys by their tokens that level one does not show; None without one
    unseen: UnseenTokens | None = None
    query_offset: int = 0  # position of query 0, for this score
    grad_key: Tensor | None = None  # (B, H, S, D) accumulators, in the backward pass
    grad_value: Tensor | None = None  # (B, H, S, D) accumulators, in the backward pass
    _masks: dict[tuple[int, int, int], Tensor] = field(default_factory=dict, repr=False)

    @cached_property
    def _any_hidden(self) -> Tensor:
        """(S,) bool, True at keys that are hidden in some row; on the CPU, where each block looks it up."""
        return self.hidden.any(0).cpu()

    def take(self, x: Tensor, keys: KeyBlock, dtype: torch.dtype) -> Tensor:
        """:meth:`KeyBlock.take` of the lane's keys or values, with zeros at hidden ones: 0·NaN is NaN."""
        taken, hidden = keys.take(x, dtype), self.hidden_in(keys.keys)
        if hidden is not None:
            taken = taken.clone()
            taken[:, : keys.size].masked_fill_(hidden.repeat_interleave(x.size(1), 0).unsqueeze(-1), 0.0)
        return taken

    def width(self, num_queries: int) -> int:
        """Keys that neighbouring queries can see in an endless sequence; without a band, one key block."""
        if self.band is None:
            return self.block_width
        # t queries reach over highest − lowest + t places, of which a key lies on every key_stride-th
        return max(0, self.band.highest - self.band.lowest + num_queries - 1) // self.band.key_stride + 1

    def query_block_size(self) -> int:
        """Queries multiplied with the lane at a time: the most that the limits on waste and size allow."""
        # a query sees width(1) keys and is multiplied with the width(t) that its block of t queries sees: larger blocks
        # have larger products, of which more is masked
        size = MAX_BLOCK
        while size > MIN_BLOCK and (
            self.width(size) > (1 + WASTE) * self.width(1)
            or size * min(KEYS_PER_BLOCK, self.width(size)) > SCORES_PER_BLOCK
        ):
            size -= MIN_BLOCK
        return size

    def key_blocks(self, start: int, num_queries: int) -> Iterator[KeyBlock]:
        """The keys that the queries ``start`` … ``start + num_queries − 1`` can see, in blocks of one width.

        Widths and starts do not depend on the number of keys S. So the result is the same to the last bit, however much
        padding follows a sequence, where the CPU's products of matrices round alike for 8 and more rows.
        """
        num_keys = self.key.size(2)
        if self.band is None:
            first, stop, width = 0, num_keys, self.block_width
        else:
            first, stop = self.band.key_range(start, start + num_queries - 1)
            whole = self.width(num_queries)
            width = -(-whole // -(-whole // self.block_width))  # as few blocks as block_width allows, equally wide
        for begin in range(first, min(stop, num_keys), width):
            # stop does not depend on S either; what lies beyond the last key is filled with zeros and masked
            end = begin + width if self.band is None else min(begin + width, stop)
            yield KeyBlock(begin, end, min(end, num_keys) - begin)

    def mask(
        self, start: int, num_queries: int, keys: KeyBlock, dtype: torch.dtype, unit: float = 1.0
    ) -> Tensor | None:
        """Additive (t, s) mask of the band, 0 (or ``unit`` times the unseen count) or -inf; None where all is seen."""
        covers = self.band is None or self.band.covers(range(start, start + num_queries), range(keys.start, keys.stop))
        if covers and self.unseen is None:
            return None
        # blocks share a mask where their keys begin as far from their queries
        shape = (self.band.key_stride * keys.start - start, num_queries, keys.stop - keys.start)
        if shape not in self._masks:
            if len(self._masks) >= 16:
                self._masks.clear()
            device = self.key.device
            queries = torch.arange(start, start + num_queries, device=device)
            pools = torch.arange(keys.start, keys.stop, device=device)
            seen = self.band.visible(queries, pools)
            mask = torch.zeros(seen.shape, dtype=dtype, device=device)
            if self.unseen is not None:
                counts = self.unseen.whole_counts(*self._places(queries, pools))
                mask = counts.to(dtype).log_().mul_(unit)  # exp(score + log c) is c tokens' weight
            self._masks[shape] = mask.masked_fill_(~seen, -torch.inf)
        return self._masks[shape]

    def partial_in(self, keys: slice) -> Tensor:
        """(s',) the pools of a range of which not all tokens count, so that :meth:`mask` is not their score."""
        if self.unseen is None:
            return torch.empty(0, dtype=torch.long)
        return self.unseen.partial[keys].nonzero()[:, 0].to(self.key.device) + keys.start

    def correction(
        self, queries: range, pools: Tensor, dtype: torch.dtype, unit: float = 1.0, rows: slice = slice(None)
    ) -> Tensor:
        """(B, t, s') what such pools' scores have beside the mask's, 0 where that is -inf."""
        # log c − log c_whole, which turns the shared mask's count into the row's own
        places = self._places(torch.arange(queries.start, queries.stop, device=pools.device), pools)
        whole = self.unseen.whole_counts(*places).to(dtype)
        return (self.unseen.counts(*places, rows) / whole).log_().mul_(unit).masked_fill_(whole == 0, 0.0)

    def _places(self, queries: Tensor, pools: Tensor) -> tuple[Tensor, Tensor]:
        """Positions of queries (t, 1), and of the first tokens of pools (1, s)."""
        return self.query_offset + queries[:, None], self.unseen.pooling.key_stride * pools[None, :]

    def hidden_in(self, keys: slice) -> Tensor | None:
        """(B, s) bool, True at the hidden keys of a range; None without any."""
        if self.hidden is None or not self._any_hidden[keys].any():
            return None
        return self.hidden[:, keys]


@dataclass
class QueryGroup:
    """Queries that attend to the same lanes, in one softmax over all of them."""

    number: int  # its place among the call's groups
    query: Tensor  # (B, H, U, D)
    index: range | Tensor  # a range of U or (B, U), each query's index in the call
    lanes: list[Lane]  # what the queries attend to
    heads: slice  # which of the call's heads these are
    out: Tensor  # (B, H, U, D), written by the forward pass, read by the backward pass
    lse: Tensor  # (B, H, U) base-2 logarithm of the softmax's denominator; +inf where a query sees nothing
    grad_out: Tensor | None = None  # (B, H, U, D), in the backward pass
    grad_query: Tensor | None = None  # (B, H, U, D), in the backward pass
    # (B, H, U) gradient of the natural logarithm, in the backward pass; None without one
    grad_lse: Tensor | None = None

    def query_blocks(self) -> Iterator[QueryBlock]:
        """All pairs of a query block and a lane: the last lane first, the window, with most of the weight, last."""
        length = self.query.size(2)
        for number, lane in reversed(list(enumerate(self.lanes))):
            size = lane.query_block_size()
            for start in range(0, length, size):
                yield QueryBlock(self, lane, (self.number, number, start), start, size, min(size, length - start))


@dataclass(frozen=True)
class QueryBlock:
    """Neighbouring queries of a group, to be multiplied with one of its lanes."""

    group: QueryGroup
    lane: Lane
    number: tuple[int, int, int]  # tells the blocks of a call apart
    start: int  # the first query
    size: int  # queries of a whole block
    count: int  # queries of this block

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + self.count)

    def take(self, x: Tensor, dtype: torch.dtype, fill: float = 0.0) -> Tensor:
        """The block of ``x`` (B, H, U, D): (B·H, t, D), filled up to at least MIN_ROWS rows with ``fill``."""
        return take(x, self.start, self.count, max(self.count, MIN_ROWS), dtype, fill)

    def write(self, x: Tensor, values: Tensor) -> None:
        """Set the block of ``x`` (B, H, U, D) to ``values`` (B·H, t, D)."""
        x[:, :, self.rows] = values[:, : self.count].unflatten(0, x.shape[:2])

    def add(self, x: Tensor, values: Tensor) -> None:
        """Add ``values`` (B·H, t, D) to the block of ``x`` (B, H, U, D)."""
        x[:, :, self.rows] += values[:, : self.count].unflatten(0, x.shape[:2])

    def key_blocks(self) -> Iterator[KeyBlock]:
        """The keys that the block's queries are multiplied with."""
        return self.lane.key_blocks(self.start, self.size)


@dataclass
class Tensors:
    """Tensors of a pass in the call's own shapes, gradients only in the backward pass; ``global_lse`` is (B, H, G)."""

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
    grad_lse: Tensor | None = None


def local_groups(plan: Plan, x: Tensors) -> Iterator[QueryGroup]:
    """One group for each residue class, with the window and the global tokens as lanes."""
    backward = x.grad_out is not None
    for number, residues in enumerate(plan.classes):
        queries = (slice(None), residues.heads, residues.queries)
        keys = (slice(None), residues.heads, residues.keys)
        window = Lane(
            key=x.key[keys],
            value=x.value[keys],
            index=range(x.key.size(2))[residues.keys],
            hidden=None if plan.masks.hidden is None else plan.masks.hidden[:, residues.keys],
            band=residues.band,
            unseen=plan.unseen,
            query_offset=plan.query_offset,
            grad_key=x.grad_key[keys] if backward else None,
            grad_value=x.grad_value[keys] if backward else None,
        )
        lanes = [window]
        if plan.masks.global_keys:
            key = plan.masks.global_keys.gather(x.key[:, residues.heads])
            value = plan.masks.global_keys.gather(x.value[:, residues.heads])
            dtype = softmax_dtype(key)  # of gradients to which all query blocks add
            lanes.append(
                Lane(
                    key=key,
                    value=value,
                    index=plan.masks.global_keys.index,
                    hidden=plan.masks.hidden_globals,
                    with_global=True,
                    # a multiple of MIN_ROWS: up to eight tokens have one width, however many the rows beside have
                    block_width=min(KEYS_PER_BLOCK, -(-key.size(2) // MIN_ROWS) * MIN_ROWS),
                    grad_key=zeros_like(key, dtype) if backward else None,
                    grad_value=zeros_like(value, dtype) if backward else None,
                )
            )
        yield QueryGroup(
            number=number,
            query=x.query[queries],
            index=range(x.query.size(2))[residues.queries],
            lanes=lanes,
            heads=residues.heads,
            out=x.out[queries],
            lse=x.lse[queries],
            grad_out=x.grad_out[queries] if backward else None,
            grad_query=x.grad_query[queries] if backward else None,
            grad_lse=None if x.grad_lse is None else x.grad_lse[queries],
        )


def global_group(plan: Plan, x: Tensors) -> QueryGroup:
    """The global queries, with all tokens as their lane."""
    tokens = plan.global_queries
    backward = x.grad_out is not None
    query = tokens.gather(x.query)
    lane = Lane(
        key=x.key,
        value=x.value,
        index=range(x.key.size(2)),
        hidden=plan.masks.padding,
        with_global=True,
        grad_key=x.grad_key,
        grad_value=x.grad_value,
    )
    return QueryGroup(
        number=len(plan.classes),
        query=query,
        index=tokens.index,
        lanes=[lane],
        heads=slice(0, plan.num_heads),
        out=tokens.gather(x.out) if backward else torch.zeros_like(query),
        lse=x.global_lse,
        grad_out=tokens.gather(x.grad_out) if backward else None,
        grad_query=torch.zeros_like(query) if backward else None,
        grad_lse=None if x.grad_lse is None else tokens.gather(x.grad_lse.unsqueeze(-1)).squeeze(-1),
    )


def take(x: Tensor, start: int, count: int, width: int, dtype: torch.dtype, fill: float = 0.0) -> Tensor:
    """``x[:, :, start:start + count]`` of (B, H, S, D) as (B·H, width, D), ``fill`` after that; a view if it can be."""
    taken = x[:, :, start : start + count].flatten(0, 1).to(dtype)
    if dtype == torch.bfloat16 and x.device.type == "cpu":
        taken = taken.contiguous()  # else oneDNN makes a copy itself, of the transposed matrix, which takes longer
    return F.pad(taken, (0, 0, 0, width - count), value=fill) if width > count else taken


def take_index(index: range | Tensor, start: int, width: int) -> range | Tensor:
    """The indices ``start`` … ``start + width − 1``; a range continues beyond its end, a tensor (B, S) with zeros."""
    if isinstance(index, range):
        first = index.start + start * index.step
        return range(first, first + width * index.step, index.step)
    taken = index[:, start : start + width]  # what is filled up does not count, so any index will do
    return F.pad(taken, (0, width - taken.size(1)))


def add_bmm(target: Tensor, a: Tensor, b: Tensor, scale: float) -> None:
    """``target += scale·(a @ b)`` in place, whatever the dtype of ``target``."""
    if target.dtype == a.dtype:
        target.baddbmm_(a, b, alpha=scale)
    else:
        target.add_(torch.bmm(a, b).to(target.dtype), alpha=scale)  # adding another dtype is slow on a CPU
