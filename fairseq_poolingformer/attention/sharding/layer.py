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

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_poolingformer.attention.call import Call, ScoreTerm
from fairseq_poolingformer.attention.dropout import dropout_seed
from fairseq_poolingformer.attention.dropout_at import DropoutAt
from fairseq_poolingformer.attention.functional import band_attention
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.merging import merge_softmax
from fairseq_poolingformer.attention.patterns import Window
from fairseq_poolingformer.attention.pooling import pool_keys
from fairseq_poolingformer.attention.rotary import Rotary, turned
from fairseq_poolingformer.attention.sharding.chunks import Result, Sliced, Source, in_chunks, overwritten
from fairseq_poolingformer.attention.sharding.exchange import Route, exchange, narrowed, shifted
from fairseq_poolingformer.attention.sharding.geometry import pools_among, pools_of, tokens_of
from fairseq_poolingformer.attention.sharding.global_pairs import SLOTS, GlobalPairs
from fairseq_poolingformer.attention.sharding.reach import Reach


class _Near(NamedTuple):
    """An array of what is within reach of this rank, whose first row is token (or pool) ``start``."""

    source: Source
    start: int

    def of(self, rows: list[range]) -> Sliced:
        return Sliced(self.source, [shifted(x, self.start) for x in rows])


class _Seeds(NamedTuple):
    """Seeds of dropout: of level one, of separate global projections, and of level two."""

    one: int
    own: int
    two: int


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
        self.before, self.after = before, after
        self.dropout_p = layer.dropout if layer.training else 0.0
        self.seeds = _Seeds(0, 0, 0)
        if self.dropout_p:
            self.seeds = _Seeds(*shard.agreed([dropout_seed() for _ in _Seeds._fields], x.device))
        scale = (layer.embed_dim // layer.num_heads) ** -0.5 if layer.scale is None else layer.scale
        self.pairs = GlobalPairs(score_terms, scale, self.dropout_p, self.seeds.one, shard.tokens)
        self.separate = layer.global_q_proj is not None
        self.reads_input = after is not None or (layer.mix and layer.pooling is not None)
        self.place = shard.place_of_chunks
        self.reach = Reach(layer, shard.parts)
        self.padding = shard.padding_of(self.reach.near)  # which may be an exchange, so all ranks do it now
        self.rotary, self.angles, self.global_angles = rotary, None, []
        if rotary is not None:
            key = (rotary.cos, rotary.sin, self.reach.seen)  # other layers have the same ones
            self.angles, self.global_angles = shard.made(key, lambda: self.fetch_angles(rotary))

    def check_terms(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """The operator's check of score terms with global tokens, which here is not told of any."""
        own = self.shard.tokens.own
        call = Call(query, key, value, self.pairs.scale, self.layer.window, global_tokens=own, score_terms=self.terms)
        call._check_pattern()

    def output(self, x: Tensor) -> Tensor:
        """The layer's output at this rank's tokens."""
        layer, shard, rank = self.layer, self.shard, self.shard.rank
        own = self.held(x, self.dim, shard.part)
        seen, of_globals = self.fetch_input(x, own)
        y = self.level_one(seen, of_globals)
        if layer.pooling is None:
            return self.level_two(self.held(y, self.dim, shard.part), own, [])
        if shard.ranks is None:
            of_y = self.held(y, self.dim, shard.part)
            pooled, pools = self.pool(seen if layer.mix else of_y), self.reach.pools[rank]
        else:
            straddled = seen
            if not layer.mix:
                y, fetched = shard.fetched(y, (y, self.dim, shard.parts, self.reach.straddled))
                straddled = self.held(fetched, self.dim, self.reach.straddled[rank])
            y, *pooled = shard.fetched(
                y, *((p, SLOTS, self.reach.pools, self.reach.pools_seen) for p in self.pool(straddled))
            )
            of_y, pools = self.held(y, self.dim, shard.part), self.reach.pools_seen[rank]
        return self.level_two(of_y, own, [self.held(p, SLOTS, pools) for p in pooled])

    def held(self, x: Tensor, dim: int, rows: range) -> _Near:
        """An array within reach of this rank."""
        return _Near(self.shard.source(x, dim), rows.start)

    def fetch_input(self, x: Tensor, own: _Near) -> tuple[_Near, list[Tensor]]:
        """The input within reach of level one, and [that of all global tokens]."""
        shard, tokens = self.shard, self.shard.tokens
        of_own = [] if tokens is None else [self.rows_of_own_globals(own.source)]
        if shard.ranks is None:
            seen, of_globals = own, [_picked(g, tokens.order) for g in of_own]
        else:
            fetched, of_globals = self.fetch(x, self.dim, of_own)
            seen = self.held(fetched, self.dim, self.reach.seen[shard.rank])
        return seen, [self.layer._merge(g) for g in of_globals]

    def fetch_angles(self, rotary: Rotary) -> tuple[Tensor, list[Tensor]]:
        """(B or 1, 1, tokens, 2D) cosines and sines within reach of level one, and [those of all global tokens]."""
        angles, own = torch.cat([rotary.cos, rotary.sin], -1).unsqueeze(1), len(self.shard.part)
        pools = len(self.reach.pools[self.shard.rank]) if self.layer.pooling is not None else 0
        if angles.size(SLOTS) < own + pools:
            raise ValueError(
                f"rotary has {angles.size(SLOTS)} angles, but {own} tokens, and {pools} pools that start at them, need "
                "one each"
            )
        angles = narrowed(angles, SLOTS, range(own))
        tokens = self.shard.tokens
        of_own = [] if tokens is None else [tokens.own.gather(angles.expand(tokens.own.num_rows, -1, -1, -1))]
        return self.fetch(angles, SLOTS, of_own)

    def fetch(self, x: Tensor, dim: int, of_own: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """``x`` within reach of level one, and of [its rows (B, H, G, D) at own global tokens] those at all."""
        shard, tokens = self.shard, self.shard.tokens
        everything = [range(0 if tokens is None else sum(tokens.counts))] * len(shard.parts)
        fields = [(g, SLOTS, tokens.ranges(), everything) for g in of_own]
        _, seen, *of_globals = shard.fetched(x, (x, dim, shard.parts, self.reach.seen), *fields)
        return seen, [_picked(g, tokens.order) for g in of_globals]

    def angles_at(self, tokens: range, *others: Tensor) -> Rotary | None:
        """The angles of tokens within reach, and of others behind them."""
        if self.angles is None:
            return None
        own = narrowed(self.angles, SLOTS, shifted(tokens, self.reach.seen[self.shard.rank].start))
        rows = max(map(len, (own, *others)))
        return _rotary([x.expand(rows, -1, -1, -1) for x in (own, *others)])

    def rows_of_own_globals(self, source: Source) -> Tensor:
        """(B, H, G, D) the rows of own global tokens."""
        tokens, split = self.shard.own_tokens(source.x.device), self.layer._split
        return source.take(lambda x: tokens.gather(split(x)), lambda x, grad: tokens.add(split(x), grad))

    def level_one(self, seen: _Near, of_globals: list[Tensor]) -> Tensor:
        """Level one's Y at own tokens, in the layout of the input."""
        chunks = self.shard.chunks
        sources = [seen.of([self.reach.tokens_seen(chunk) for chunk in chunks])]
        (y,), partial = self.in_chunks(
            self.level_one_of, chunks, sources, *of_globals, results=[(self.dim, self.shard.rows)]
        )
        return self.with_rows_of_globals(y, [x for (x,) in partial]) if of_globals else y

    def level_one_of(self, chunk: range, x: Tensor, *of_globals: Tensor) -> tuple[Tensor, ...]:
        """Y of a chunk, from the input that it sees; and of global tokens' rows what :meth:`rows_of_globals` gives."""
        layer, tokens, seen = self.layer, self.shard.tokens, self.reach.tokens_seen(chunk)
        own, counts = shifted(chunk, seen.start), [len(seen), *(g.size(self.dim) for g in of_globals)]
        x = torch.cat([x, *of_globals], self.dim) if of_globals else x
        x = x if self.before is None else self.before(x)
        query = turned(layer._split(layer.q_proj(narrowed(x, self.dim, own))), self.angles_at(chunk))
        key = turned(layer._split(layer.k_proj(x)), self.angles_at(seen, *self.global_angles))
        value = layer._split(layer.v_proj(x))
        arguments = {"window": layer.window, "query_offset": own.start, "score_terms": self.terms}
        backend = layer.backend or layer._backend_of_full_attention(query, self.terms, self.dropout_p)
        arguments |= self.arguments(backend, DropoutAt(self.seeds.one, chunk.start, seen.start))
        if tokens is None:
            y = band_attention(query, key, value, key_padding_mask=self.padding_at(seen), **arguments)
            return (layer._merge(y),)
        hidden, appended = self.shard.made((seen.start, seen.stop), lambda: self.hidden_keys(seen))
        if self.terms:  # they read distances, which copies at the end would not have
            (key, g_key), (value, g_value) = key.split(counts, SLOTS), value.split(counts, SLOTS)
            near = band_attention(query, key, value, key_padding_mask=hidden, return_lse=True, **arguments)
            self.check_terms(query, key, value)
            far = self.pairs.to_globals(chunk, query, g_key, g_value)
            y = merge_softmax([near, far])[0].to(query.dtype)
        else:
            masks = {"key_padding_mask": torch.cat([hidden, tokens.hidden], 1), "global_mask": appended}
            y = band_attention(query, key, value, **masks, **arguments)
        if self.separate:
            of_own = narrowed(x, self.dim, own)
            key = turned(layer._split(layer.global_k_proj(of_own)), self.angles_at(chunk))
            value = layer._split(layer.global_v_proj(of_own))
        else:
            key, value = narrowed(key, SLOTS, own), narrowed(value, SLOTS, own)
        return layer._merge(y), self.rows_of_globals(chunk, x.split(counts, self.dim)[1], key, value)

    def rows_of_globals(self, chunk: range, of_globals: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """All global tokens' softmax over a chunk's keys: the output (B, H, G, D), and behind it its logarithm."""
        layer = self.layer
        query = layer._split((layer.global_q_proj if self.separate else layer.q_proj)(of_globals))
        query = turned(query, _rotary(self.global_angles))
        if self.terms:
            out, lse = self.pairs.from_globals(query, chunk, key, value, self.padding_at(chunk))
        else:
            seed, lane = (self.seeds.own, 0) if self.separate else (self.seeds.one, DropoutAt.FROM_GLOBAL)
            arguments = self.arguments(layer.backend, DropoutAt(seed, 0, chunk.start, lane=lane))
            arguments |= {"key_padding_mask": self.padding_at(chunk), "return_lse": True}
            out, lse = band_attention(query, key, value, window=Window.unlimited(), **arguments)
        return torch.cat([out.to(lse.dtype), lse.unsqueeze(-1)], -1)

    def with_rows_of_globals(self, y: Tensor, partial: list[Tensor]) -> Tensor:
        """Y with the rows of own global tokens, merged from all chunks and ranks in their order."""
        shard, tokens, layer = self.shard, self.shard.tokens, self.layer
        if shard.ranks is not None:
            sent, own = tuple(tokens.ranges()), tokens.own.num_slots
            route = Route(SLOTS, sent, (own,) * len(sent))
            y, rows = exchange(shard.ranks, y, (_picked(_merged(partial), tokens.slot), route))
            if not own:
                return y
            partial = rows.split(own, SLOTS)
        rows, own_tokens = _merged(partial)[..., :-1], shard.own_tokens(y.device)
        if self.place is None or shard.ranks is not None:
            return layer._merge(own_tokens.replaced(layer._split(y), rows))
        return overwritten(y, rows, own_tokens, layer._split)

    def pool(self, straddled: _Near) -> list[Tensor]:
        """The pooled keys and values (B, H, P, D) of the pools that start at own tokens, from their tokens."""
        shard, pooling = self.shard, self.layer.pooling
        chunks = [chunk for chunk in shard.chunks if pools_of(pooling, chunk)] or [shard.part]
        first = self.reach.pools[shard.rank].start
        made = SLOTS, [shifted(pools_of(pooling, chunk), first) for chunk in chunks]
        sources = [straddled.of([self.reach.tokens_of_pools_of(chunk) for chunk in chunks])]
        return self.in_chunks(self.pool_of, chunks, sources, results=[made, made])[0]

    def pool_of(self, chunk: range, x: Tensor) -> tuple[Tensor, ...]:
        """The pooled keys and values of a chunk."""
        layer, tokens = self.layer, self.reach.tokens_of_pools_of(chunk)
        padding = self.padding_at(tokens)
        x = x if self.before is None or not layer.mix else self.before(x)
        pools = pools_of(layer.pooling, chunk)
        among = pools_among(layer.pooling, tokens, pools)
        _, k_proj, v_proj = layer._pooled_projections()
        pairs = (k_proj, layer.pooled_k_pool_weight), (v_proj, layer.pooled_v_pool_weight)
        key, value = (narrowed(layer._pool(x, *pair, padding)[0], SLOTS, among) for pair in pairs)
        first = len(self.shard.part) + pools.start - self.reach.pools[self.shard.rank].start
        return turned(key, self.rotary, first), value

    def level_two(self, y: _Near, x: _Near, pooled: list[_Near]) -> Tensor:
        """The layer's output at own tokens."""
        chunks = self.shard.chunks
        sources = [y.of(chunks), *([x.of(chunks)] if self.reads_input else [])]
        if pooled:
            among = self.reach.pools_seen[self.shard.rank]
            sources += [p.of([self.reach.pools_seen_by(chunk, among) for chunk in chunks]) for p in pooled]
        into = None if torch.is_grad_enabled() else y.source.x  # of which each chunk reads its own rows alone
        return self.in_chunks(self.level_two_of, chunks, sources, results=[(self.dim, self.shard.rows, into)])[0][0]

    def level_two_of(self, chunk: range, y: Tensor, *sources: Tensor) -> tuple[Tensor]:
        """A chunk's output from Y, the input where that is read, and the pooled keys and values that it sees."""
        layer = self.layer
        x, *pooled = sources if self.reads_input else (None, *sources)
        attended = layer._split(y)
        if pooled:
            source = y if not layer.mix else x if self.before is None else self.before(x)
            pools, pooling = self.reach.pools_seen_by(chunk, self.reach.pools_seen[self.shard.rank]), layer.pooling
            z = band_attention(
                turned(layer._split(layer._pooled_projections()[0](source)), self.angles_at(chunk)),
                *pooled,
                window=layer.pooled_window,
                pooling=pooling,
                key_padding_mask=self.shard.made((chunk, pooling, pools), lambda: self.pool_padding(pools)),
                query_offset=chunk.start - pooling.key_stride * pools.start,
                **self.arguments(layer.backend, DropoutAt(self.seeds.two, chunk.start, pools.start)) | {"scale": None},
            )
            attended = attended + z
        out = layer.out_proj(layer._merge(attended))
        return (out if self.after is None else self.after(chunk, out, x),)

    def in_chunks(self, function: Callable, chunks: Any, sources: list[Sliced], *shared: Tensor, results: list) -> Any:
        """:func:`in_chunks` at this shard's place."""
        return in_chunks(function, chunks, sources, *shared, results=[Result(*r) for r in results], place=self.place)

    def arguments(self, backend: str | None, at: DropoutAt) -> dict[str, Any]:
        """Arguments of every call of the operator."""
        dropout = {"dropout_p": self.dropout_p, "dropout_at": at if self.dropout_p else None}
        return {**dropout, "scale": self.layer.scale, "backend": backend, "self_check": self.layer.self_check}

    def padding_at(self, tokens: range) -> Tensor | None:
        """(B, tokens) padding of tokens within reach of this rank."""
        padding, start = self.padding, self.reach.near[self.shard.rank].start
        return None if padding is None else narrowed(padding, 1, shifted(tokens, start))

    def pool_padding(self, pools: range) -> Tensor | None:
        """(B, pools) bool, True at pools of padding alone."""
        pooling = self.layer.pooling
        first = pooling.first_start + pooling.key_stride * pools.start
        tokens = tokens_of(pooling, pools, range(max(0, first), max(0, first) + 1), self.shard.length)
        padding = self.padding_at(tokens)
        if padding is None:
            return None
        _, hidden = pool_keys(
            torch.zeros_like(padding, dtype=torch.float32)[:, None, :, None], pooling, padding_mask=padding
        )
        return narrowed(hidden, 1, pools_among(pooling, tokens, pools))

    def hidden_keys(self, seen: range) -> tuple[Tensor, GlobalTokens]:
        """(B, seen) bool, True at padding and global tokens; and the global tokens' copies behind these keys."""
        tokens, padding = self.shard.tokens, self.padding_at(seen)
        hidden = tokens.among(seen)
        copies = torch.cat([torch.zeros_like(hidden), tokens.position >= 0], 1)
        return hidden if padding is None else hidden | padding, GlobalTokens(copies)


def _rotary(angles: Sequence[Tensor]) -> Rotary | None:
    """Angles (B or 1, 1, S, 2D), one after the other; None without any."""
    return Rotary(*torch.cat(list(angles), SLOTS)[:, 0].chunk(2, -1)) if angles else None


def _merged(partial: Sequence[Tensor]) -> Tensor:
    """One softmax over the keys of all parts, (B, H, G, D + 1) each: outputs, and behind them their logarithms."""
    if len(partial) == 1:
        return partial[0]
    out, lse = merge_softmax([(x[..., :-1], x[..., -1]) for x in partial])
    return torch.cat([out, lse.unsqueeze(-1)], -1)


def _picked(x: Tensor, slots: Tensor) -> Tensor:
    """Some slots (B, G) of (B, H, S, D): (B, H, G, D)."""
    return x.gather(SLOTS, slots[:, None, :, None].expand(-1, x.size(1), -1, x.size(3)))
