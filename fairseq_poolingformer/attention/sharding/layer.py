"""Two-level attention of one rank's part of a document: the steps of a layer, with exchanges between them.

1. The layer's input within reach of level one's window, and of all global tokens. Their keys and values are projected
   where they are used: half the bytes of keys and values, for two projections of the border's tokens.
2. Level one's Y at own tokens. Every global token's row is a softmax over own keys, which go to the token's owner.
3. The tokens of pools that straddle a border, to the rank at whose tokens the pools start; it pools keys and values.
4. Pooled keys and values within reach of level two's window; Z, and the output.

Rotary angles of a border are fetched once for all layers; pools are turned by their owner.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.call import ScoreTerm
from fairseq_poolingformer.attention.dropout import DropoutAt, dropout_seed
from fairseq_poolingformer.attention.functional import band_attention
from fairseq_poolingformer.attention.patterns import Window
from fairseq_poolingformer.attention.rotary import Rotary
from fairseq_poolingformer.attention.sharding.exchange import Route, Rows, exchange, merge_softmax, narrowed, shifted
from fairseq_poolingformer.attention.sharding.global_tokens import SLOTS, GlobalPairs
from fairseq_poolingformer.attention.sharding.halo import Halo, Reach, pools_among


class Steps:
    """One call of a layer; arguments as those of :meth:`Shard.attend`."""

    def __init__(
        self,
        layer: Any,
        shard: Any,
        x: Tensor,
        score_terms: tuple[ScoreTerm, ...],
        rotary: Rotary | None,
    ) -> None:
        dim = 1 if layer.batch_first else 0
        if x.size(dim) != len(shard.part):
            raise ValueError(
                f"x has {x.size(dim)} tokens, but the shard {len(shard.part)}: make a shard for each batch"
            )
        layer.check_score_terms(score_terms)
        if layer.one_softmax:
            raise ValueError(
                "pool_merge 'softmax' does not compute documents in parts: give each process whole documents, or merge "
                "by 'sum'"
            )
        self.layer, self.shard, self.dim, self.terms = layer, shard, dim, score_terms
        self.dropout_p = layer.dropout_p
        seeds: list[int] = [0, 0, 0]  # of level one, of separate global projections, of level two
        if self.dropout_p:
            seeds = shard.agreed([dropout_seed() for _ in seeds], x.device)
        self.seed_one, self.seed_of_globals, self.seed_two = seeds
        scale = (layer.embed_dim // layer.num_heads) ** -0.5 if layer.scale is None else layer.scale
        self.pairs = GlobalPairs(score_terms, scale, layer.window, self.dropout_p, self.seed_one, shard.tokens)
        self.reach = Reach(layer, shard.parts)
        self.halo = Halo(shard, self.reach, layer.pooling, rotary)

    def output(self, x: Tensor) -> Tensor:
        """The layer's output at this rank's tokens."""
        layer, shard, reach, own = self.layer, self.shard, self.reach, self.shard.part
        seen, of_globals = shard.near(
            Rows(x, self.dim, own.start), reach.seen, lambda: shard.tokens.own.gather(layer._split(x))
        )
        y = self.level_one(seen, [layer._merge(rows) for rows in of_globals])
        if layer.pooling is None:
            return layer.out_proj(y)
        attended = straddled = Rows(y, self.dim, own.start)
        if layer.mix:
            straddled = seen
        else:
            attended, straddled = shard.fetched(attended, (attended, shard.parts, reach.straddled))
        made = [Rows(pools, SLOTS, reach.pools[shard.rank].start) for pools in self.pool(straddled)]
        attended, *pooled = shard.fetched(attended, *((pools, reach.pools, reach.pools_seen) for pools in made))
        z = self.level_two(
            x if layer.mix else attended.x, *(pools.of(reach.pools_seen[shard.rank]) for pools in pooled)
        )
        return layer.out_proj(layer._merge(layer._split(attended.x) + z))

    def level_one(self, seen: Rows, of_globals: list[Tensor]) -> Tensor:
        """Level one's Y at own tokens, in the layout of the input, from the input that these see."""
        layer, near, part = self.layer, self.halo, self.shard.part
        tokens = self.reach.tokens_seen(part)
        own, counts = shifted(part, tokens.start), [len(tokens), *(rows.size(self.dim) for rows in of_globals)]
        x = seen.of(tokens)
        x = torch.cat([x, *of_globals], self.dim) if of_globals else x
        query = near.turned(layer._split(layer.q_proj(narrowed(x, self.dim, own))), part)
        key = near.turned(layer._split(layer.k_proj(x)), tokens, with_globals=True)
        value = layer._split(layer.v_proj(x))
        arguments = {"window": layer.window, "query_offset": own.start, "score_terms": self.terms}
        backend = layer.backend
        if backend is None and layer.window == Window.unlimited():  # elsewhere a part of the keys is left out
            backend = layer._fastest(query, key, self.dropout_p, layer.window, score_terms=self.terms)
        arguments |= self.arguments(backend, DropoutAt(self.seed_one, part.start, tokens.start))
        if not of_globals:
            return layer._merge(band_attention(query, key, value, key_padding_mask=near.padding(tokens), **arguments))
        # eq. 12–13: one softmax over the window and all global tokens, whose keys stand behind those of the window and
        # are hidden among these, so that a global token inside of the window counts once
        hidden, copies = near.hidden_keys(tokens)
        if self.terms:  # they read distances, which copies at the end would not have
            (key, g_key), (value, g_value) = key.split(counts, SLOTS), value.split(counts, SLOTS)
            close = band_attention(query, key, value, key_padding_mask=hidden, return_lse=True, **arguments)
            far = self.pairs.to_globals(part, query, g_key, g_value)
            y = merge_softmax([close, far])[0].to(query.dtype)
        else:
            hidden = torch.cat([hidden, self.shard.tokens.hidden], 1)
            y = band_attention(query, key, value, key_padding_mask=hidden, global_mask=copies, **arguments)
        # the other half of eq. 12: a global token sees the whole document, and each rank computes its part of that row
        q_proj = layer.global_q_proj or layer.q_proj
        if layer.global_q_proj is None:
            key, value = narrowed(key, SLOTS, own), narrowed(value, SLOTS, own)
        else:
            of_own = narrowed(x, self.dim, own)
            key = near.turned(layer._split(layer.global_k_proj(of_own)), part)
            value = layer._split(layer.global_v_proj(of_own))
        query = near.turned_globals(layer._split(q_proj(x.split(counts, self.dim)[1])))
        return self.with_rows_of_globals(layer._merge(y), self.rows_of_globals(query, key, value))

    def rows_of_globals(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """All global tokens' softmax over own keys: the output (B, H, G, D), and behind it its logarithm."""
        layer, part, padding = self.layer, self.shard.part, self.halo.padding(self.shard.part)
        if self.terms:
            out, lse = self.pairs.from_globals(query, part, key, value, padding)
        else:
            shared = self.seed_one, DropoutAt.FROM_GLOBAL
            seed, lane = shared if layer.global_q_proj is None else (self.seed_of_globals, 0)
            arguments = self.arguments(layer.backend, DropoutAt(seed, 0, part.start, lane=lane))
            arguments |= {"key_padding_mask": padding, "return_lse": True}
            out, lse = band_attention(query, key, value, window=Window.unlimited(), **arguments)
        return torch.cat([out.to(lse.dtype), lse.unsqueeze(-1)], -1)

    def with_rows_of_globals(self, y: Tensor, rows: Tensor) -> Tensor:
        """Y with the rows of own global tokens, merged from all ranks in their order."""
        shard, tokens, layer, partial = self.shard, self.shard.tokens, self.layer, [rows]
        if shard.ranks is not None:
            sent, own = tuple(tokens.ranges()), tokens.own.num_slots
            route = Route(SLOTS, sent, (own,) * len(sent))
            y, rows = exchange(shard.ranks, y, (tokens.by_rank(rows), route))
            if not own:
                return y
            partial = rows.split(own, SLOTS)
        # softmaxes over parts of the keys, weighted by their denominators: Σ exp(lse_r − lse)·out_r
        merged, _ = merge_softmax([(x[..., :-1], x[..., -1]) for x in partial])
        return layer._merge(tokens.own.replaced(layer._split(y), merged))

    def pool(self, straddled: Rows) -> list[Tensor]:
        """The pooled keys and values (B, H, P, D) of the pools that start at own tokens, from their tokens."""
        layer, rank = self.layer, self.shard.rank
        tokens, pools = self.reach.straddled[rank], self.reach.pools[rank]
        x, padding, among = straddled.of(tokens), self.halo.padding(tokens), pools_among(layer.pooling, tokens, pools)
        _, k_proj, v_proj = layer._pooled_projections()
        pairs = (k_proj, layer.pooled_k_pool_weight), (v_proj, layer.pooled_v_pool_weight)
        key, value = (narrowed(layer._pool(x, *pair, padding)[0], SLOTS, among) for pair in pairs)
        return [self.halo.turned_pools(key, pools), value]

    def level_two(self, source: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Z (B, H, T, D) at own tokens, from what its queries are projected of and the pools that they see."""
        layer, part = self.layer, self.shard.part
        pools, pooling = self.reach.pools_seen[self.shard.rank], layer.pooling
        return band_attention(
            self.halo.turned(layer._split(layer._pooled_projections()[0](source)), part),
            key,
            value,
            window=layer.pooled_window,
            pooling=pooling,
            key_padding_mask=self.halo.pool_padding(pools),
            query_offset=part.start - pooling.key_stride * pools.start,  # as if the first pool here were number 0
            **self.arguments(layer.backend, DropoutAt(self.seed_two, part.start, pools.start)) | {"scale": None},
        )

    def arguments(self, backend: str | None, at: DropoutAt) -> dict[str, Any]:
        """Arguments of every call of the operator."""
        dropout = {"dropout_p": self.dropout_p, "dropout_at": at if self.dropout_p else None}
        return {**dropout, "scale": self.layer.scale, "backend": backend, "self_check": self.layer.self_check}
