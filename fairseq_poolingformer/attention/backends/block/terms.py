"""Score terms in the block backend: what they add to the scores of a tile, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends.block.diagonals import Diagonals
from fairseq_poolingformer.attention.backends.lanes import Source
from fairseq_poolingformer.attention.backends.plan import LOG2E
from fairseq_poolingformer.attention.backends.term_gradients import TermGradients
from fairseq_poolingformer.attention.patterns import UNLIMITED
from fairseq_poolingformer.attention.score_terms.relative_bias import (
    Pairs,
    ScoreTerm,
    of_heads,
    term_tensors,
    with_tensors,
)


@dataclass(frozen=True)
class Tile:
    """A block of queries and a chunk of keys.

    Args:
        pairs: theirs; where queries or keys are ranges, those made up to fill the tile go on as the range does.
        source: the keys.
        first_query, first_key: their places in the stream and in the source.
    """

    pairs: Pairs
    source: Source
    first_query: int
    first_key: int

    @property
    def num_queries(self) -> int:
        return self.pairs.query.size(2)

    @property
    def num_keys(self) -> int:
        return self.pairs.key.size(2)

    def by_query(self) -> Diagonals:
        """What is seen of the matrix (queries × keys); of a tile with ranges of queries and keys."""
        pairs, ahead = self.pairs, self.first_key - self.first_query
        distance = pairs.query_offset + pairs.query_index.start - pairs.key_stride * pairs.key_index.start
        band = self.source.band
        lowest, highest = (-UNLIMITED, UNLIMITED) if band is None else (band.lowest - ahead, band.highest - ahead)
        return Diagonals(lowest, highest, distance, slope=-pairs.query_index.step)

    def by_key(self) -> Diagonals:
        """The same of the matrix (keys × queries)."""
        seen = self.by_query()
        return Diagonals(-seen.highest, -seen.lowest, seen.distance, -seen.slope)


class TermOfStream:
    """One score term in one stream of queries: by its own ``scores``, and by autograd.

    Args:
        term: the call's.
        heads: the stream's.
        num_heads: the call's.
        gradients: where gradients are summed up, in the backward pass.
        number: which of ``gradients``' terms it is.
    """

    def __init__(
        self,
        term: ScoreTerm,
        heads: slice,
        num_heads: int,
        gradients: TermGradients | None = None,
        number: int = 0,
    ) -> None:
        self.in_backward, self.leaves, self.sums = gradients is not None, {}, {}
        self.tracked: tuple[Tensor, Tensor, Tensor] | None = None  # a tile's scores, queries and keys, with their graph
        if gradients is not None:
            term, places = gradients.terms[number]
            self.leaves = {name: gradients.leaves[place] for name, place in places.items()}
            self.sums = {name: gradients.sums[place] for name, place in places.items()}
        self.term, self.heads, self.num_heads = term, heads, num_heads

    def narrowed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The share of the stream's heads in tensors (H, …) of the term."""
        return {name: of_heads(x, self.heads, self.num_heads) for name, x in tensors.items()}

    def narrowed_term(self) -> ScoreTerm:
        """The term for the stream's heads."""
        return with_tensors(self.term, self.narrowed(term_tensors(self.term)))

    def add_scores(self, scores: Tensor, tile: Tile) -> None:
        """Add the term to a tile's scores to base 2, (B, H, t, s); in the backward pass before its gradients."""
        if not self.in_backward:
            scores.add_(self.narrowed_term().scores(tile.pairs), alpha=LOG2E)
            return
        query, key = (x.detach().requires_grad_() for x in (tile.pairs.query, tile.pairs.key))
        with torch.enable_grad():
            computed = self.narrowed_term().scores(replace(tile.pairs, query=query, key=key))
        scores.add_(computed.detach(), alpha=LOG2E)
        self.tracked = computed, query, key

    def add_gradients(self, grad_scores: Tensor, tile: Tile, grad_query: Tensor, grad_key: Tensor) -> None:
        """Add what a tile's ``grad_scores`` (B, H, t, s), to base e, mean for tensors, queries and keys.

        Args:
            grad_scores: zero where a query does not see a key.
            tile: the pairs.
            grad_query: (B, H, t, D), to be added to.
            grad_key: (B, H, s', D) of those keys of the tile that exist, likewise.
        """
        (scores, query, key), self.tracked = self.tracked, None
        if not scores.requires_grad:
            return
        grad = grad_scores.sum_to_size(scores.shape).to(scores.dtype)
        grads = torch.autograd.grad(scores, [*self.leaves.values(), query, key], grad, allow_unused=True)
        for total, x in zip([*self.sums.values(), grad_query], grads[:-1], strict=True):
            if x is not None:  # a term need not read all of its tensors in every tile, nor queries and keys
                total += x
        if grads[-1] is not None:
            grad_key += grads[-1][:, :, : grad_key.size(2)]

    def finish(self) -> None:
        """Called after the stream's last tile."""
