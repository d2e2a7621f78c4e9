"""Which tokens and pools each part of a document needs in a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq_poolingformer.attention.sharding.geometry import hull, pools_of, pools_seen, tokens_of, tokens_seen


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
