"""The global tokens of a document, of which each rank has some, and their pairs where score terms ask for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fairseq_poolingformer.attention.backends.plan import softmax_dtype
from fairseq_poolingformer.attention.backends.reference import log_denominator, softmax_or_zeros
from fairseq_poolingformer.attention.call import Call, Pairs, ScoreTerm
from fairseq_poolingformer.attention.dropout import DropoutAt, KeepMask
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.patterns import Window
from fairseq_poolingformer.attention.sharding.exchange import merge_softmax, narrowed, shifted

SLOTS = 2  # the dimension of tokens, pools and global tokens in (B, H, …, D)


@dataclass(frozen=True)
class DocumentTokens:
    """The global tokens of all ranks, in the document's order: G slots in every row."""

    own: GlobalTokens  # those of this rank, in slots of its own
    counts: tuple[int, ...]  # how many slots each rank has
    position: Tensor  # (B, G) the token in each slot, counted from the document's beginning; -1 in unused slots
    hidden: Tensor  # (B, G) bool, True at unused slots and at padding
    order: Tensor  # (B, G) which of the ranks' slots, one rank after the other, are these
    slot: Tensor  # (B, sum of counts) the reverse; any for unused slots

    @classmethod
    def of(cls, own: GlobalTokens, counts: tuple[int, ...], found: Tensor) -> DocumentTokens:
        """From the position and the padding (B, sum of counts, 2) of all ranks' slots; a position is -1 if unused."""
        used = found[..., 0] >= 0
        order = (~used).byte().argsort(dim=1, stable=True)[:, : int(used.sum(1).max())]
        position, padded = found.gather(1, order[..., None].expand(-1, -1, 2)).unbind(-1)
        hidden = (position < 0) | padded.bool()
        return cls(own, counts, position, hidden, order, (used.cumsum(1) - 1).clamp(min=0))

    def ranges(self) -> list[range]:
        """The slots of each rank among those of all."""
        return [range(*ends) for ends in pairwise(accumulate(self.counts, initial=0))]

    def in_order(self, x: Tensor) -> Tensor:
        """(B, H, G, D) in the document's order, from that of the ranks (B, H, sum of counts, D)."""
        return _picked(x, self.order)

    def by_rank(self, x: Tensor) -> Tensor:
        """The reverse of :meth:`in_order`."""
        return _picked(x, self.slot)

    def among(self, tokens: range) -> Tensor:
        """(B, tokens) bool, True where one of some neighbouring tokens is global."""
        place = self.position - tokens.start
        mask = place.new_zeros(place.size(0), len(tokens) + 1, dtype=torch.bool)
        inside = (place >= 0) & (place < len(tokens)) & (self.position >= 0)
        return mask.scatter(1, place.where(inside, len(tokens)), True)[:, :-1]


def _picked(x: Tensor, slots: Tensor) -> Tensor:
    """Some slots (B, G) of (B, H, S, D): (B, H, G, D)."""
    return x.gather(SLOTS, slots[:, None, :, None].expand(-1, x.size(1), -1, x.size(3)))


DENSE_TOKENS = 2048  # whose scores with all global tokens are in memory at a time


@dataclass(frozen=True)
class GlobalPairs:
    """Pairs of a document's global tokens with some of its tokens."""

    terms: tuple[ScoreTerm, ...]  # are added to the scores
    scale: float  # of the scores
    window: Window  # of the layer, which terms may refuse beside global tokens
    dropout_p: float  # probability of dropping a weight
    seed: int  # of dropout
    tokens: Any  # the :class:`DocumentTokens`; None without any, and then without pairs

    def to_globals(self, tokens: range, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Some tokens' attention to the global tokens, and the logarithm; an error where a term has no meaning."""
        call = Call(query, key, value, self.scale, self.window, global_tokens=self.tokens.own, score_terms=self.terms)
        call._check_pattern()

        def of_some(rows: range, query: Tensor) -> tuple[Tensor, Tensor]:
            places = shifted(rows, -tokens.start), self.tokens.position
            return self._attend(query, key, value, places, self.tokens.hidden, DropoutAt.TO_GLOBAL)

        out, lse = zip(*self._densely(of_some, query), strict=True)
        return torch.cat(out, SLOTS), torch.cat(lse, SLOTS)

    def from_globals(
        self, query: Tensor, tokens: range, key: Tensor, value: Tensor, padding: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The global tokens' attention to some tokens, and the logarithm."""

        def of_some(rows: range, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            places = self.tokens.position, shifted(rows, -tokens.start)
            hidden = None if padding is None else narrowed(padding, 1, rows)
            return self._attend(query, key, value, places, hidden, DropoutAt.FROM_GLOBAL)

        found = self._densely(of_some, key, value)
        return found[0] if len(found) == 1 else merge_softmax(found)

    def _densely(self, function: Callable[..., tuple[Tensor, Tensor]], *tensors: Tensor) -> list[tuple[Tensor, Tensor]]:
        """``function(rows, rows of the tensors)`` of all rows, some at a time, again in the backward pass."""
        size = tensors[0].size(SLOTS)
        if size <= DENSE_TOKENS:
            return [function(range(size), *tensors)]
        blocks = [range(first, min(first + DENSE_TOKENS, size)) for first in range(0, size, DENSE_TOKENS)]
        slices = ([narrowed(x, SLOTS, rows) for x in tensors] for rows in blocks)
        return [checkpoint(function, rows, *x, use_reentrant=False) for rows, x in zip(blocks, slices, strict=True)]

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        places: tuple[range | Tensor, range | Tensor],
        hidden: Tensor | None,
        lane: int,
    ) -> tuple[Tensor, Tensor]:
        """The attention, and the logarithm: all scores at once.

        ``places`` are the tokens of queries and keys, a range or (B, G); ``hidden`` (B, S) are keys that nobody sees.
        """
        wide = softmax_dtype(query)
        if hidden is not None:  # their weights are zero, but 0·NaN is NaN
            key, value = (x.masked_fill(hidden[:, None, :, None], 0.0) for x in (key, value))
        pairs = Pairs(*places, query=query, key=key, scale=self.scale, with_global=True)
        scores = self.scale * query.to(wide) @ key.to(wide).transpose(-1, -2)
        for term in self.terms:
            scores = scores + term.scores(pairs)
        if hidden is not None:
            scores = scores.masked_fill(hidden[:, None, None], -torch.inf)
        weights = softmax_or_zeros(scores).to(value.dtype)
        if self.dropout_p:
            firsts = (place.start if isinstance(place, range) else 0 for place in places)
            mask, at = KeepMask(self.dropout_p, self.seed), DropoutAt(self.seed, *firsts)
            kept = at.of_pairs(weights, mask.dropped, range(query.size(2)), range(key.size(2)), lane)
            weights = weights * kept / mask.keep
        return weights @ value, log_denominator(scores)
