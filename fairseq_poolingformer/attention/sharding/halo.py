"""The halo of a part of a document: which tokens and pools it sees or needs, and what is known of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.patterns import Pooling, Window, band_of
from fairseq_poolingformer.attention.pooling import pool_keys
from fairseq_poolingformer.attention.rotary import Rotary, turned
from fairseq_poolingformer.attention.sharding.exchange import Rows, narrowed
from fairseq_poolingformer.attention.sharding.global_tokens import SLOTS


def tokens_seen(window: Window, num_heads: int, queries: range, num_tokens: int) -> range:
    """The tokens that the window shows some neighbouring queries, these included."""
    bands = [band_of(window, dilation=dilation) for dilation in set(window.head_dilations(num_heads))]
    starts, stops = zip(*(band.key_range(queries.start, queries.stop - 1) for band in bands), strict=True)
    return range(min(starts), min(max(stops), num_tokens))


def pools_seen(window: Window, pooling: Pooling, queries: range, among: range) -> range:
    """The pools that the window shows some neighbouring queries; where it shows none ``among`` these, one of these."""
    start, stop = band_of(window, pooling).key_range(queries.start, queries.stop - 1)
    start = min(start, among.stop - 1)  # one pool at least, since no call takes zero keys; the window hides it
    return range(start, max(start + 1, min(stop, among.stop)))


def pools_of(pooling: Pooling, tokens: range) -> range:
    """The pools that start at these tokens; the first tokens also have those that start before them."""
    return range(*(pooling.num_pools(end) if end else 0 for end in (tokens.start, tokens.stop)))


def tokens_of(pooling: Pooling, pools: range, part: range, num_tokens: int) -> range:
    """The tokens of neighbouring pools, which start in ``part``; its first token where there are no pools."""
    if not pools:
        return range(part.start, part.start + 1)
    # pool p covers first_start + key_stride·p and the κ − 1 tokens that follow
    start, last = (pooling.first_start + pooling.key_stride * pool for pool in (pools.start, pools.stop - 1))
    return range(max(0, start), min(last + pooling.kernel_size, num_tokens))


def pools_among(pooling: Pooling, tokens: range, pools: range) -> range:
    """The places of ``pools`` among those that :func:`pool_keys` makes of ``tokens``, their own."""
    # on the grid the tokens begin with the first pool; query-aligned, pool_keys also makes the κ − 1 pools that begin
    # before the tokens, so that number p of the document, which starts at p − (κ − 1), is number p − tokens.start
    first = 0 if pooling.alignment == "grid" else pools.start - tokens.start
    return range(first, first + len(pools)) if pools else range(0)


def hull(one: range, other: range) -> range:
    """From the first number of two ranges to the last."""
    return range(min(one.start, other.start), max(one.stop, other.stop))


class Reach:
    """The reach of a layer's two levels, of each rank."""

    def __init__(self, layer: Any, parts: Sequence[range]) -> None:
        self._layer, self._length = layer, parts[-1].stop
        # tokens within reach of level one, with Mix also those of its pools; and those whose padding matters, since the
        # rank's tokens see them, in pools or not
        self.seen = self.near = tuple(map(self.tokens_seen, parts))
        self.pools: tuple[range, ...] = ()  # those that start at its tokens
        self.straddled: tuple[range, ...] = ()  # the tokens of these pools
        self.pools_seen: tuple[range, ...] = ()  # within reach of level two
        pooling = layer.pooling
        if pooling is None:
            return
        everything = range(pooling.num_pools(self._length))
        self.pools = tuple(pools_of(pooling, part) for part in parts)
        self.straddled = tuple(map(self.tokens_of_pools_of, parts))
        self.pools_seen = tuple(self.pools_seen_by(part, everything) for part in parts)
        if layer.mix:
            self.seen = tuple(map(hull, self.seen, self.straddled))
        near = map(hull, self.seen, self.straddled)
        self.near = tuple(
            hull(tokens, tokens_of(pooling, pools, seen, self._length))
            for tokens, pools, seen in zip(near, self.pools_seen, self.seen, strict=True)
        )

    def tokens_seen(self, part: range) -> range:
        """The tokens within reach of level one of some neighbouring tokens."""
        return tokens_seen(self._layer.window, self._layer.num_heads, part, self._length)

    def pools_seen_by(self, part: range, among: range) -> range:
        """The pools within reach of level two; where there are none ``among`` these, one of these."""
        return pools_seen(self._layer.pooled_window, self._layer.pooling, part, among)

    def tokens_of_pools_of(self, part: range) -> range:
        """The tokens of the pools that start in a part."""
        return tokens_of(self._layer.pooling, pools_of(self._layer.pooling, part), part, self._length)


class Halo:
    """Padding, rotary angles and global tokens within a layer's reach, which all layers of this reach share.

    All ranks make one together, because it exchanges what no layer before has. ``rotary`` has the angles of this rank's
    tokens, then of its pools.
    """

    def __init__(self, shard: Any, reach: Reach, pooling: Any, rotary: Rotary | None) -> None:
        self._shard, self._pooling, self._rotary = shard, pooling, rotary
        self._padding = shard.padding_of(reach.near)
        self._first_pool = reach.pools[shard.rank].start if reach.pools else 0
        self._angles: Rows | None = None
        self._global_angles: list[Tensor] = []
        if rotary is not None:
            key = (rotary.cos, rotary.sin, reach.seen)  # other layers have the same ones
            self._angles, self._global_angles = shard.made(key, lambda: self._fetch_angles(rotary, reach))

    def _fetch_angles(self, rotary: Rotary, reach: Reach) -> tuple[Rows, list[Tensor]]:
        """(B or 1, 1, tokens, 2D) cosines and sines within reach of level one, and [those of all global tokens]."""
        shard, tokens = self._shard, self._shard.tokens
        angles, own = torch.cat([rotary.cos, rotary.sin], -1).unsqueeze(1), len(shard.part)
        pools = len(reach.pools[shard.rank]) if reach.pools else 0
        if angles.size(SLOTS) < own + pools:
            raise ValueError(
                f"rotary has {angles.size(SLOTS)} angles, but {own} tokens, and {pools} pools that start at them, need "
                "one each"
            )
        angles = narrowed(angles, SLOTS, range(own))
        return shard.near(
            Rows(angles, SLOTS, shard.part.start),
            reach.seen,
            lambda: tokens.own.gather(angles.expand(tokens.own.num_rows, -1, -1, -1)),
        )

    def turned(self, x: Tensor, tokens: range, with_globals: bool = False) -> Tensor:
        """Queries or keys (B, H, S, D) of tokens, behind which those of all global tokens may be."""
        if self._angles is None:
            return x
        return turned(x, _rotary([self._angles.of(tokens), *(self._global_angles if with_globals else [])]))

    def turned_globals(self, x: Tensor) -> Tensor:
        """Queries (B, H, G, D) of all global tokens."""
        return turned(x, _rotary(self._global_angles)) if self._global_angles else x

    def turned_pools(self, x: Tensor, pools: range) -> Tensor:
        """Keys (B, H, P, D) of pools that start at own tokens."""
        return turned(x, self._rotary, len(self._shard.part) + pools.start - self._first_pool)

    def padding(self, tokens: range) -> Tensor | None:
        """(B, tokens) bool, True at padding."""
        return None if self._padding is None else self._padding.of(tokens)

    def pool_padding(self, pools: range) -> Tensor | None:
        """(B, pools) bool, True at pools of padding alone."""
        return self._shard.made((self._pooling, pools), lambda: self._hidden_pools(self._pooling, pools))

    def _hidden_pools(self, pooling: Pooling, pools: range) -> Tensor | None:
        first = max(0, pooling.first_start + pooling.key_stride * pools.start)
        tokens = tokens_of(pooling, pools, range(first, first + 1), self._shard.length)
        padding = self.padding(tokens)
        if padding is None:
            return None
        nothing = torch.zeros_like(padding, dtype=torch.float32)[:, None, :, None]
        _, hidden = pool_keys(nothing, pooling, padding_mask=padding)
        assert hidden is not None  # as there is a padding_mask
        return narrowed(hidden, 1, pools_among(pooling, tokens, pools))

    def hidden_keys(self, tokens: range) -> tuple[Tensor, GlobalTokens]:
        """(B, tokens) bool, True at padding and global tokens; and the global tokens' copies behind these keys."""
        return self._shard.made((tokens.start, tokens.stop), lambda: self._hidden_keys(tokens))

    def _hidden_keys(self, tokens: range) -> tuple[Tensor, GlobalTokens]:
        everyone, padding = self._shard.tokens, self.padding(tokens)
        hidden = everyone.among(tokens)
        copies = torch.cat([torch.zeros_like(hidden), everyone.position >= 0], 1)
        return hidden if padding is None else hidden | padding, GlobalTokens(copies)


def _rotary(angles: Sequence[Tensor]) -> Rotary:
    """Angles (B or 1, 1, S, 2D), one after the other."""
    rows = max(map(len, angles))
    return Rotary(*torch.cat([x.expand(rows, -1, -1, -1) for x in angles], SLOTS)[:, 0].chunk(2, -1))
