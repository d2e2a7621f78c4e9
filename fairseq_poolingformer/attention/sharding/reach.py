"""Which tokens and pools each part of a document sees or needs, in numbers that count from the document's beginning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq_poolingformer.attention.patterns import Pooling, Window, band_of


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
    """The reach of a layer's two levels.

    Args:
        layer: the :class:`TwoLevelAttention`.
        parts: the tokens of each rank.

    Attributes:
        seen: of each rank, the tokens within reach of level one; with Mix also those of its pools.
        pools: the pools that start at its tokens.
        straddled: the tokens of these pools.
        pools_seen: the pools within reach of level two.
        near: the tokens whose padding matters to it: those that its tokens see, in pools or not.
    """

    def __init__(self, layer: Any, parts: Sequence[range]) -> None:
        self._layer, self._length = layer, parts[-1].stop
        self.seen = self.near = tuple(map(self.tokens_seen, parts))
        self.pools: tuple[range, ...] = ()
        self.straddled: tuple[range, ...] = ()
        self.pools_seen: tuple[range, ...] = ()
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
