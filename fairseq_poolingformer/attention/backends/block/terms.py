"""Score terms in the block backend: the scores that they add, block by block, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends.block.diagonals import Diagonals
from fairseq_poolingformer.attention.backends.block.lanes import Lane
from fairseq_poolingformer.attention.backends.plan import LOG2E, TermGradients
from fairseq_poolingformer.attention.call import Pairs, ScoreTerm, of_heads, term_tensors
from fairseq_poolingformer.attention.patterns import UNLIMITED


@dataclass(frozen=True)
class BlockPair:
    """A query block and a key block.

    Args:
        pairs: their pairs; a range of queries or keys continues beyond the last one to fill up the block.
        lane: the lane of the keys.
        first_query, first_key: the blocks' places in the group and in the lane.
    """

    pairs: Pairs
    lane: Lane
    first_query: int
    first_key: int

    @property
    def num_queries(self) -> int:
        return self.pairs.query.size(2)

    @property
    def num_keys(self) -> int:
        return self.pairs.key.size(2)

    def by_query(self) -> Diagonals:
        """The diagonals that the band shows of the matrix (queries × keys), where both indices are ranges."""
        pairs, ahead = self.pairs, self.first_key - self.first_query
        queries, keys = pairs.query_index, pairs.key_index
        assert isinstance(queries, range)
        assert isinstance(keys, range)
        distance = pairs.query_offset + queries.start - pairs.key_stride * keys.start
        band = self.lane.band
        lowest, highest = (-UNLIMITED, UNLIMITED) if band is None else (band.lowest - ahead, band.highest - ahead)
        return Diagonals(lowest, highest, distance, slope=-queries.step)

    def by_key(self) -> Diagonals:
        """The diagonals that the band shows of the matrix (keys × queries)."""
        seen = self.by_query()
        return Diagonals(-seen.highest, -seen.lowest, seen.distance, -seen.slope)


class TermOfGroup:
    """One score term in one query group, computed by the term's own ``scores`` and differentiated by autograd.

    Args:
        term: the call's term.
        heads: the group's heads.
        num_heads: the number of heads of the call.
        gradients: where gradients are summed up; None in the forward pass.
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
        # the scores, queries and keys of the block pair at hand, with their graph
        self.tracked: tuple[Tensor, Tensor, Tensor] | None = None
        if gradients is not None:
            term, places = gradients.terms[number]
            self.leaves = {name: gradients.leaves[place] for name, place in places.items()}
            self.sums = {name: gradients.sums[place] for name, place in places.items()}
        self.term, self.heads, self.num_heads = term, heads, num_heads

    def of_group(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The rows of the group's heads in tensors (H, …) of the term."""
        return {name: of_heads(x, self.heads, self.num_heads) for name, x in tensors.items()}

    def term_of_group(self) -> ScoreTerm:
        """The term for the group's heads."""
        return term_of_group(self.term, self.heads, self.num_heads)

    def add_scores(self, scores: Tensor, pair: BlockPair) -> None:
        """Add the term to the base-2 scores (B, H, t, s) of a block pair."""
        if not self.in_backward:
            scores.add_(self.term_of_group().scores(pair.pairs), alpha=LOG2E)
            return
        query, key = (x.detach().requires_grad_() for x in (pair.pairs.query, pair.pairs.key))
        with torch.enable_grad():
            computed = self.term_of_group().scores(replace(pair.pairs, query=query, key=key))
        scores.add_(computed.detach(), alpha=LOG2E)
        self.tracked = computed, query, key

    def add_gradients(self, grad_scores: Tensor, pair: BlockPair, grad_query: Tensor, grad_key: Tensor) -> None:
        """Add the gradients of the term's tensors, of queries and of keys; after :meth:`add_scores` for the same pair.

        Args:
            grad_scores: (B, H, t, s) gradient of the base-e scores, zero where a query does not see a key.
            pair: the blocks.
            grad_query: (B, H, t, D), to be added to.
            grad_key: (B, H, s', D) of the keys that exist, to be added to.
        """
        (scores, query, key), self.tracked = self.tracked, None
        if not scores.requires_grad:
            return
        grad = grad_scores.sum_to_size(scores.shape).to(scores.dtype)
        grads = torch.autograd.grad(scores, [*self.leaves.values(), query, key], grad, allow_unused=True)
        for total, x in zip([*self.sums.values(), grad_query], grads[:-1], strict=True):
            if x is not None:  # a term need not read all of its tensors for every pair, nor queries and keys
                total += x
        if grads[-1] is not None:
            grad_key += grads[-1][:, :, : grad_key.size(2)]

    def finish(self) -> None:
        """Called after the group's last block pair."""


def term_of_group(term: ScoreTerm, heads: slice, num_heads: int) -> ScoreTerm:
    """A call's term for the heads of a group."""
    return replace(term, **{name: of_heads(x, heads, num_heads) for name, x in term_tensors(term).items()})
