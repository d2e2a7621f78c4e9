"""What is known of the tokens near a rank before a layer computes anything: padding, angles, which are global."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.patterns import Pooling
from fairseq_poolingformer.attention.pooling import pool_keys
from fairseq_poolingformer.attention.rotary import Rotary, turned
from fairseq_poolingformer.attention.sharding.document_tokens import SLOTS
from fairseq_poolingformer.attention.sharding.exchange import Rows, narrowed
from fairseq_poolingformer.attention.sharding.reach import Reach, pools_among, tokens_of


class Near:
    """Padding, rotary angles and global tokens within a layer's reach, which all layers of this reach share.

    All ranks make one together, because it exchanges what no layer before has.

    Args:
        shard: the :class:`Shard`.
        reach: the layer's.
        pooling: its pools; None for level one alone.
        rotary: the angles of this rank's tokens, then of its pools.

    Raises:
        ValueError: there are too few angles.
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
