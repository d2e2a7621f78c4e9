"""Attention with score terms where every pair has a global token: all scores of some tokens at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fairseq_poolingformer.attention.backends.plan import softmax_dtype
from fairseq_poolingformer.attention.backends.reference import log_denominator, softmax_or_zeros
from fairseq_poolingformer.attention.call import Call, Pairs, ScoreTerm
from fairseq_poolingformer.attention.dropout import KeepMask
from fairseq_poolingformer.attention.dropout_at import DropoutAt
from fairseq_poolingformer.attention.merging import merge_softmax
from fairseq_poolingformer.attention.patterns import Window
from fairseq_poolingformer.attention.sharding.document_tokens import SLOTS
from fairseq_poolingformer.attention.sharding.exchange import narrowed, shifted

DENSE_TOKENS = 2048  # whose scores with all global tokens are in memory at a time


@dataclass(frozen=True)
class GlobalPairs:
    """Pairs of a document's global tokens with some of its tokens.

    Args:
        terms: are added to the scores.
        scale: of the scores.
        window: of the layer, which terms may refuse beside global tokens.
        dropout_p: probability of dropping a weight.
        seed: of dropout.
        tokens: the :class:`DocumentTokens`; None without any, and then without pairs.
    """

    terms: tuple[ScoreTerm, ...]
    scale: float
    window: Window
    dropout_p: float
    seed: int
    tokens: Any

    def to_globals(self, tokens: range, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Some tokens' attention to the global tokens, and the logarithm.

        Raises:
            ValueError: a term has no meaning with global tokens.
        """
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

        Args:
            query, key, value: (B, H, T, D), (B, H, S, D).
            places: the tokens of queries and keys, in a range or (B, G).
            hidden: (B, S) bool, True at keys that are not seen.
            lane: of dropout; there global tokens count as slots.
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
