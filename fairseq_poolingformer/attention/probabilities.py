"""Attention weights in banded form: every query's weights on the keys that it sees, without an n × n matrix.

The operator never has all weights at once. This module computes them again, in blocks of queries, for people who want
to look at them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends.plan import softmax_dtype
from fairseq_poolingformer.attention.backends.reference import softmax_or_zeros
from fairseq_poolingformer.attention.call import Call, Pairs
from fairseq_poolingformer.attention.compiler import outside_the_compiler
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.patterns import band_of

QUERIES_PER_BLOCK = 64


class BandWeights(NamedTuple):
    """The weights of one softmax: one level of one layer, in float32, or in float64 for float64 inputs.

    The weights of an ordinary query in ``band`` and ``to_global`` add up to 1, or to 0 where it sees nothing. A global
    token inside the window counts once, in ``to_global``. The rows of global queries are 0 in both; their weights are
    in ``from_global``.

    Attributes:
        band: (B, H, T, K) weights of query t on the keys that its window shows, the first one first.
        band_keys: (H or 1, T, K) the index of each of these keys; -1 in places without a key, where the weight is 0.
        to_global: (B, H, T, G) weights of query t on the global keys.
        from_global: (B, H, R, S) weights of the global queries on all keys.
        global_keys: (B, G) the index of each global key; -1 in unused slots. G is 0 without global tokens.
        global_queries: (B, R) the index of each global query; -1 in unused slots.
        key_start, key_stop: (S,) the tokens ``[key_start, key_stop)`` that key s covers: itself, or its pool.
    """

    band: Tensor
    band_keys: Tensor
    to_global: Tensor
    from_global: Tensor
    global_keys: Tensor
    global_queries: Tensor
    key_start: Tensor
    key_stop: Tensor

    def of_query(self, query: int) -> Tensor:
        """Return (B, H, S), the weights of query number ``query`` on every key."""
        batch, heads = self.band.shape[:2]
        row = self.band.new_zeros(batch, heads, self.key_start.size(0))
        keys = self.band_keys[:, query].clamp(min=0).expand(batch, heads, -1)
        row = row.scatter_add(2, keys, self.band[:, :, query])
        keys = self.global_keys.clamp(min=0)[:, None].expand(-1, heads, -1)
        row = row.scatter_add(2, keys, self.to_global[:, :, query])
        own = (self.global_queries == query).to(row.dtype)
        return row + torch.einsum("br,bhrs->bhs", own, self.from_global)

    def over_tokens(self, row: Tensor) -> Tensor:
        """Return (…, tokens), where each key's weight in (…, S) is spread evenly over the tokens that it covers."""
        lengths = self.key_stop - self.key_start
        keys = torch.repeat_interleave(lengths)
        first = lengths.cumsum(0) - lengths
        tokens = self.key_start[keys] + torch.arange(len(keys), device=keys.device) - first[keys]
        share = (row / lengths)[..., keys]
        return row.new_zeros(*row.shape[:-1], int(self.key_stop.max())).index_add(-1, tokens, share)


class LevelWeights(NamedTuple):
    """The weights of one layer; ``level_two`` is None where the layer has one level."""

    level_one: BandWeights
    level_two: BandWeights | None


@outside_the_compiler
def band_weights(query: Tensor, key: Tensor, **arguments: Any) -> BandWeights:
    """Compute the weights that :func:`~fairseq_poolingformer.attention.band_attention` gives the values.

    Memory is that of the result, and of the scores of 64 queries. Gradients flow.

    Args:
        query, key: (B, H, T, D) and (B, H, S, D).
        arguments: ``window``, ``pooling``, ``global_mask``, ``key_padding_mask``, ``score_terms``, ``query_offset`` and
            ``scale`` as for ``band_attention``. With ``pooling`` the sequence is taken to end at the last query.

    Raises:
        ValueError: an argument is out of range.
    """
    query, key = (x.to(softmax_dtype(query)) for x in (query, key))
    call = Call.of(query, key, key, **arguments)
    global_keys, global_queries = call.masks.global_keys, call.global_queries()
    band_keys = _band_keys(call)
    blocks = [
        _block(call, range(start, min(start + QUERIES_PER_BLOCK, query.size(2))), band_keys, global_keys)
        for start in range(0, query.size(2), QUERIES_PER_BLOCK)
    ]
    weights = torch.cat(blocks, dim=2)
    if global_queries is not None:
        weights = weights.masked_fill(global_queries.mask[:, None, :, None], 0.0)
    num_band = band_keys.size(2)
    start, stop = _tokens_of_keys(call)
    return BandWeights(
        band=weights[..., :num_band],
        band_keys=band_keys,
        to_global=weights[..., num_band:],
        from_global=_from_global(call, global_queries),
        global_keys=_index(call, global_keys),
        global_queries=_index(call, global_queries),
        key_start=start,
        key_stop=stop,
    )


def _band_keys(call: Call) -> Tensor:
    """(H or 1, T, K) the keys that the window shows each query, were none padding or global; -1 for none."""
    num_queries, num_keys, device = call.query.size(2), call.key.size(2), call.query.device
    positions = call.query_offset + torch.arange(num_queries, device=device)
    dilations = call.window.head_dilations(call.query.size(1))
    firsts, counts, steps = [], [], []
    for dilation in dilations if len(set(dilations)) > 1 else dilations[:1]:
        band = band_of(call.window, call.pooling, dilation)
        first = -((-(positions + band.lowest)).div(band.key_stride, rounding_mode="floor"))
        first = torch.where(first < 0, first % band.step, first)
        last = (positions + band.highest).div(band.key_stride, rounding_mode="floor").clamp(max=num_keys - 1)
        firsts.append(first)
        counts.append(((last - first).div(band.step, rounding_mode="floor") + 1).clamp(min=0))
        steps.append(band.step)
    first, count = torch.stack(firsts)[..., None], torch.stack(counts)[..., None]
    place = torch.arange(int(count.max()), device=device)
    keys = first + torch.tensor(steps, device=device)[:, None, None] * place
    return keys.masked_fill(place >= count, -1)


def _block(call: Call, queries: range, band_keys: Tensor, global_keys: GlobalTokens | None) -> Tensor:
    """(B, H, t, K + G) weights of some queries on the keys of their windows, then on the global keys."""
    batch, heads = call.query.shape[:2]
    rows = slice(queries.start, queries.stop)
    taken = band_keys[:, rows]
    shown = taken[taken >= 0]
    first, stop = (int(shown.min()), int(shown.max()) + 1) if len(shown) else (0, 0)
    query = call.query[:, :, rows]
    keys, hidden = call.key[:, :, first:stop], (taken < 0).expand(batch, -1, -1, -1)
    place = (taken - first).clamp(min=0)
    masks = [call.key_padding_mask, None if global_keys is None else global_keys.mask]
    for mask in masks if len(shown) else ():
        if mask is not None:
            hidden = hidden | mask[:, first:stop][:, place]
    scores = _scores(call, query, keys, queries, range(first, stop), with_global=False)
    scores = scores.gather(3, place.expand(batch, heads, -1, -1)) if len(shown) else scores
    scores = scores.masked_fill(hidden, -torch.inf)
    if global_keys is not None:
        key = global_keys.gather(call.key)
        to_global = _scores(call, query, key, queries, global_keys.index, with_global=True)
        to_global = to_global.masked_fill(global_keys.hidden(call.key_padding_mask)[:, None, None], -torch.inf)
        scores = torch.cat([scores, to_global], dim=3)
    return softmax_or_zeros(scores) if scores.size(-1) else scores


def _from_global(call: Call, tokens: GlobalTokens | None) -> Tensor:
    """(B, H, R, S) weights of the global queries."""
    if tokens is None:
        return call.query.new_zeros(call.query.size(0), call.query.size(1), 0, call.key.size(2))
    keys = range(call.key.size(2))
    scores = _scores(call, tokens.gather(call.query), call.key, tokens.index, keys, with_global=True)
    if call.key_padding_mask is not None:
        scores = scores.masked_fill(call.key_padding_mask[:, None, None], -torch.inf)
    return softmax_or_zeros(scores).masked_fill(tokens.unused[:, None, :, None], 0.0)


def _scores(
    call: Call, query: Tensor, key: Tensor, queries: range | Tensor, keys: range | Tensor, with_global: bool
) -> Tensor:
    """(B, H, t, s) scores between some queries and some keys."""
    scores = call.scale * query @ key.transpose(-1, -2)
    pairs = Pairs.of(call, queries, keys, query, key, with_global)
    for term in call.score_terms if scores.numel() else ():
        scores = scores + term.scores(pairs)
    return scores


def _index(call: Call, tokens: GlobalTokens | None) -> Tensor:
    """(B, G) the global tokens; -1 in unused slots."""
    if tokens is None:
        return torch.zeros(call.query.size(0), 0, dtype=torch.long, device=call.query.device)
    return tokens.index.masked_fill(tokens.unused, -1)


def _tokens_of_keys(call: Call) -> tuple[Tensor, Tensor]:
    """(S,) and (S,): the half-open range of tokens that each key covers."""
    number = torch.arange(call.key.size(2), device=call.key.device)
    if call.pooling is None:
        return number, number + 1
    start = call.key_offset + call.key_stride * number
    stop = (start + call.pooling.kernel_size).clamp(max=call.query_offset + call.query.size(2))
    return start.clamp(min=0), stop
