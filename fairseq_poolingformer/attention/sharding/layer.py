"""Two-level attention of one rank's part of a document: the steps of a layer, with exchanges between them.

1. The layer's input within reach of level one's window, and of all global tokens. Their keys and values are projected
   where they are used: half the bytes of keys and values, for two projections of the border's tokens.
2. Level one's Y at own tokens. Every global token's row is a softmax over own keys, which go to the token's owner.
3. The tokens of pools that straddle a border, to the rank at whose tokens the pools start; it pools keys and values.
4. Pooled keys and values within reach of level two's window; Z, and the output.

Rotary angles of a border are fetched once for all layers; pools are turned by their owner. Chunks of time go through
steps 2, 3 and 4 one after the other; what follows the attention in an encoder layer is part of step 4, so that arrays
of all tokens are a layer's input, Y, the pooled keys and values, and the output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.call import ScoreTerm
from fairseq_poolingformer.attention.dropout import dropout_seed
from fairseq_poolingformer.attention.dropout_at import DropoutAt
from fairseq_poolingformer.attention.functional import band_attention
from fairseq_poolingformer.attention.merging import merge_softmax
from fairseq_poolingformer.attention.patterns import Window
from fairseq_poolingformer.attention.rotary import Rotary
from fairseq_poolingformer.attention.sharding.chunks import Source, overwritten
from fairseq_poolingformer.attention.sharding.document_tokens import SLOTS
from fairseq_poolingformer.attention.sharding.exchange import Route, exchange, narrowed, shifted
from fairseq_poolingformer.attention.sharding.global_pairs import GlobalPairs
from fairseq_poolingformer.attention.sharding.near import Near
from fairseq_poolingformer.attention.sharding.reach import Reach, pools_among, pools_of


class Steps:
    """One call of a layer; arguments as those of :meth:`Shard.attend`.

    Raises:
        ValueError: ``x`` has another number of tokens, or the layer cannot run the score terms.
    """

    def __init__(
        self,
        layer: Any,
        shard: Any,
        x: Tensor,
        score_terms: tuple[ScoreTerm, ...],
        rotary: Rotary | None,
        before: Callable[[Tensor], Tensor] | None,
        after: Callable[[range, Tensor, Tensor], Tensor] | None,
    ) -> None:
        dim = 1 if layer.batch_first else 0
        if x.size(dim) != len(shard.part):
            raise ValueError(
                f"x has {x.size(dim)} tokens, but the shard {len(shard.part)}: make a shard for each batch"
            )
        layer.check_score_terms(score_terms)
        self.layer, self.shard, self.dim, self.terms = layer, shard, dim, score_terms
        self.before, self.after = before or (lambda x: x), after
        self.dropout_p = layer.dropout if layer.training else 0.0
        seeds: list[int] = [0, 0, 0]  # of level one, of separate global projections, of level two
        if self.dropout_p:
            seeds = shard.agreed([dropout_seed() for _ in seeds], x.device)
        self.seed_one, self.seed_of_globals, self.seed_two = seeds
        scale = (layer.embed_dim // layer.num_heads) ** -0.5 if layer.scale is None else layer.scale
        self.pairs = GlobalPairs(score_terms, scale, layer.window, self.dropout_p, self.seed_one, shard.tokens)
        self.reads_input = after is not None or (layer.mix and layer.pooling is not None)
        self.reach = Reach(layer, shard.parts)
        self.near = Near(shard, self.reach, layer.pooling, rotary)

    def output(self, x: Tensor) -> Tensor:
        """The layer's output at this rank's tokens."""
        layer, shard, reach = self.layer, self.shard, self.reach
        own = shard.source(x, self.dim)
        seen, of_globals = shard.near(own, reach.seen, lambda: self.rows_of_own_globals(own))
        y = shard.source(self.level_one(seen, [layer._merge(rows) for rows in of_globals]), self.dim)
        if layer.pooling is None:
            return self.level_two(y, own, [])
        straddled = seen
        if not layer.mix:
            y, straddled = shard.fetched(y, (y, shard.parts, reach.straddled))
        made = [shard.source(pools, SLOTS, reach.pools[shard.rank].start) for pools in self.pool(straddled)]
        y, *pooled = shard.fetched(y, *((pools, reach.pools, reach.pools_seen) for pools in made))
        return self.level_two(y, own, pooled)

    def rows_of_own_globals(self, source: Source) -> Tensor:
        """(B, H, G, D) the rows of own global tokens."""
        tokens, split = self.shard.own_tokens(source.x.device), self.layer._split
        return source.take(lambda x: tokens.gather(split(x)), lambda x, grad: tokens.add(split(x), grad))

    def level_one(self, seen: Source, of_globals: list[Tensor]) -> Tensor:
        """Level one's Y at own tokens, in the layout of the input."""
        chunks = self.shard.chunks
        sources, results = [(seen, [self.reach.tokens_seen(chunk) for chunk in chunks])], [(self.dim, chunks)]
        (y,), partial = self.shard.in_chunks(self.level_one_of, chunks, sources, *of_globals, results=results)
        return self.with_rows_of_globals(y, [x for (x,) in partial]) if of_globals else y

    def level_one_of(self, chunk: range, x: Tensor, *of_globals: Tensor) -> tuple[Tensor, ...]:
        """Y of a chunk, from the input that it sees; and of global tokens' rows what :meth:`rows_of_globals` gives."""
        layer, near, seen = self.layer, self.near, self.reach.tokens_seen(chunk)
        own, counts = shifted(chunk, seen.start), [len(seen), *(rows.size(self.dim) for rows in of_globals)]
        x = self.before(torch.cat([x, *of_globals], self.dim) if of_globals else x)
        query = near.turned(layer._split(layer.q_proj(narrowed(x, self.dim, own))), chunk)
        key = near.turned(layer._split(layer.k_proj(x)), seen, with_globals=True)
        value = layer._split(layer.v_proj(x))
        arguments = {"window": layer.window, "query_offset": own.start, "score_terms": self.terms}
        backend = layer.backend or layer._backend_of_full_attention(query, self.terms, self.dropout_p)
        arguments |= self.arguments(backend, DropoutAt(self.seed_one, chunk.start, seen.start))
        if not of_globals:
            y = band_attention(query, key, value, key_padding_mask=near.padding(seen), **arguments)
            return (layer._merge(y),)
        hidden, copies = near.hidden_keys(seen)
        if self.terms:  # they read distances, which copies at the end would not have
            (key, g_key), (value, g_value) = key.split(counts, SLOTS), value.split(counts, SLOTS)
            close = band_attention(query, key, value, key_padding_mask=hidden, return_lse=True, **arguments)
            far = self.pairs.to_globals(chunk, query, g_key, g_value)
            y = merge_softmax([close, far])[0].to(query.dtype)
        else:
            hidden = torch.cat([hidden, self.shard.tokens.hidden], 1)
            y = band_attention(query, key, value, key_padding_mask=hidden, global_mask=copies, **arguments)
        q_proj = layer.global_q_proj or layer.q_proj
        if layer.global_q_proj is None:
            key, value = narrowed(key, SLOTS, own), narrowed(value, SLOTS, own)
        else:
            of_own = narrowed(x, self.dim, own)
            key = near.turned(layer._split(layer.global_k_proj(of_own)), chunk)
            value = layer._split(layer.global_v_proj(of_own))
        query = near.turned_globals(layer._split(q_proj(x.split(counts, self.dim)[1])))
        return layer._merge(y), self.rows_of_globals(chunk, query, key, value)

    def rows_of_globals(self, chunk: range, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """All global tokens' softmax over a chunk's keys: the output (B, H, G, D), and behind it its logarithm."""
        layer, padding = self.layer, self.near.padding(chunk)
        if self.terms:
            out, lse = self.pairs.from_globals(query, chunk, key, value, padding)
        else:
            shared = self.seed_one, DropoutAt.FROM_GLOBAL
            seed, lane = shared if layer.global_q_proj is None else (self.seed_of_globals, 0)
            arguments = self.arguments(layer.backend, DropoutAt(seed, 0, chunk.start, lane=lane))
            arguments |= {"key_padding_mask": padding, "return_lse": True}
            out, lse = band_attention(query, key, value, window=Window.unlimited(), **arguments)
        return torch.cat([out.to(lse.dtype), lse.unsqueeze(-1)], -1)

    def with_rows_of_globals(self, y: Tensor, partial: list[Tensor]) -> Tensor:
        """Y with the rows of own global tokens, merged from all chunks and ranks in their order."""
        shard, tokens, layer = self.shard, self.shard.tokens, self.layer
        if shard.ranks is not None:
            sent, own = tuple(tokens.ranges()), tokens.own.num_slots
            route = Route(SLOTS, sent, (own,) * len(sent))
            y, rows = exchange(shard.ranks, y, (tokens.by_rank(_merged(partial)), route))
            if not own:
                return y
            partial = list(rows.split(own, SLOTS))
        rows, own_tokens = _merged(partial)[..., :-1], shard.own_tokens(y.device)
        if shard.place_of_chunks is None or shard.ranks is not None:
            return layer._merge(own_tokens.replaced(layer._split(y), rows))
        return overwritten(y, rows, own_tokens, layer._split)

    def pool(self, straddled: Source) -> list[Tensor]:
        """The pooled keys and values (B, H, P, D) of the pools that start at own tokens, from their tokens."""
        pooling = self.layer.pooling
        chunks = [chunk for chunk in self.shard.chunks if pools_of(pooling, chunk)] or [self.shard.part]
        made = SLOTS, [pools_of(pooling, chunk) for chunk in chunks]
        sources = [(straddled, [self.reach.tokens_of_pools_of(chunk) for chunk in chunks])]
        return self.shard.in_chunks(self.pool_of, chunks, sources, results=[made, made])[0]

    def pool_of(self, chunk: range, x: Tensor) -> tuple[Tensor, ...]:
        """The pooled keys and values of a chunk."""
        layer, tokens = self.layer, self.reach.tokens_of_pools_of(chunk)
        padding, x = self.near.padding(tokens), self.before(x) if layer.mix else x
        pools = pools_of(layer.pooling, chunk)
        among = pools_among(layer.pooling, tokens, pools)
        _, k_proj, v_proj = layer._pooled_projections()
        pairs = (k_proj, layer.pooled_k_pool_weight), (v_proj, layer.pooled_v_pool_weight)
        key, value = (narrowed(layer._pool(x, *pair, padding)[0], SLOTS, among) for pair in pairs)
        return self.near.turned_pools(key, pools), value

    def level_two(self, y: Source, x: Source, pooled: list[Source]) -> Tensor:
        """The layer's output at own tokens."""
        chunks = self.shard.chunks
        sources = [(y, chunks), *([(x, chunks)] if self.reads_input else [])]
        sources += [(p, [self.pools_seen(chunk) for chunk in chunks]) for p in pooled]
        into = None if torch.is_grad_enabled() else y.x  # of which each chunk reads its own rows alone
        results = [(self.dim, chunks)]
        return self.shard.in_chunks(self.level_two_of, chunks, sources, results=results, into=into)[0][0]

    def level_two_of(self, chunk: range, y: Tensor, *sources: Tensor) -> tuple[Tensor]:
        """A chunk's output from Y, the input where that is read, and the pooled keys and values that it sees."""
        layer, near = self.layer, self.near
        x, *pooled = sources if self.reads_input else (None, *sources)
        attended = layer._split(y)
        if pooled:
            source, pools, pooling = self.before(x) if layer.mix else y, self.pools_seen(chunk), layer.pooling
            z = band_attention(
                near.turned(layer._split(layer._pooled_projections()[0](source)), chunk),
                *pooled,
                window=layer.pooled_window,
                pooling=pooling,
                key_padding_mask=near.pool_padding(pools),
                query_offset=chunk.start - pooling.key_stride * pools.start,
                **self.arguments(layer.backend, DropoutAt(self.seed_two, chunk.start, pools.start)) | {"scale": None},
            )
            attended = attended + z
        out = layer.out_proj(layer._merge(attended))
        return (out if self.after is None else self.after(chunk, out, x),)

    def pools_seen(self, chunk: range) -> range:
        """The pools within reach of a chunk."""
        return self.reach.pools_seen_by(chunk, self.reach.pools_seen[self.shard.rank])

    def arguments(self, backend: str | None, at: DropoutAt) -> dict[str, Any]:
        """Arguments of every call of the operator."""
        dropout = {"dropout_p": self.dropout_p, "dropout_at": at if self.dropout_p else None}
        return {**dropout, "scale": self.layer.scale, "backend": backend, "self_check": self.layer.self_check}


def _merged(partial: list[Tensor]) -> Tensor:
    """One softmax over the keys of all parts, (B, H, G, D + 1) each: outputs, and behind them their logarithms."""
    if len(partial) == 1:
        return partial[0]
    out, lse = merge_softmax([(x[..., :-1], x[..., -1]) for x in partial])
    return torch.cat([out, lse.unsqueeze(-1)], -1)
