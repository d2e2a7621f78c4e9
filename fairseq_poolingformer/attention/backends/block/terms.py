"""Score terms in the block backend: the scores that they add, block by block, and their gradients.

One row of a table of positions serves each diagonal of a matrix (queries × keys). The products of the matrix's row
vectors with these table rows are a matrix (rows × diagonals). Shifted by one more place in every row, which is a view
with another stride, they lie on the matrix itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention.backends.block.lanes import Lane
from fairseq_poolingformer.attention.backends.plan import LOG2E, TermGradients
from fairseq_poolingformer.attention.call import Pairs, ScoreTerm, of_heads, term_tensors
from fairseq_poolingformer.choices import UNLIMITED


@dataclass(frozen=True)
class Diagonals:
    """Neighbouring diagonals of a matrix; entry (r, c) lies on number c − r."""

    lowest: int  # number of the first diagonal
    highest: int  # of the last one
    distance: int  # position of the query minus position of the key on diagonal 0
    slope: int  # how much the distance grows from one diagonal to the next

    def __len__(self) -> int:
        return self.highest + 1 - self.lowest

    def within(self, num_rows: int, num_columns: int) -> Diagonals:
        """The diagonals that a matrix of this size has, at least one."""
        lowest = min(max(self.lowest, 1 - num_rows), num_columns - 1)
        return replace(self, lowest=lowest, highest=max(lowest, min(self.highest, num_columns - 1)))

    def renumbered(self, by: int) -> Diagonals:
        """The diagonals, numbered ``by`` higher, as in a matrix without its first rows."""
        distance = self.distance - self.slope * by
        return replace(self, lowest=self.lowest + by, highest=self.highest + by, distance=distance)

    def _distances(self) -> range:
        first = self.distance + self.slope * self.lowest
        return range(first, first + self.slope * len(self), self.slope)

    def rows_of(self, table: Tensor) -> Tensor:
        """The row of each diagonal in a table (H, 2k, D): (H, diagonals, D)."""
        distances, farthest = self._distances(), table.size(1) // 2
        row = torch.arange(distances.start, distances.stop, distances.step, device=table.device) + farthest
        return table.index_select(1, row.clamp_(0, 2 * farthest - 1))

    def add_rows(self, total: Tensor, grads: Tensor) -> None:
        """Add the gradients (H, diagonals, D) of :meth:`rows_of` to ``total`` (H, 2k, D)."""
        distances, farthest = self._distances(), total.size(1) // 2
        if distances.step < 0:
            distances, grads = distances[::-1], grads.flip(1)
        # Distances −k … k − 1 have a row each; those below and beyond were clamped to the outermost rows. So: how many
        # distances lie below −k, and how many below k.
        first, stop = (
            min(len(distances), max(0, -((distances.start - end) // distances.step))) for end in (-farthest, farthest)
        )
        if first < stop:
            row = distances[first] + farthest
            total[:, row : distances[stop - 1] + farthest + 1 : distances.step] += grads[:, first:stop]
        if first:
            total[:, 0] += grads[:, :first].sum(1)
        if stop < len(distances):
            total[:, -1] += grads[:, stop:].sum(1)

    def laid_on(self, products: Tensor, num_columns: int) -> tuple[slice, Tensor]:
        """Columns of a (B, H, rows, num_columns) matrix with products, and a view of them, valid on the diagonals."""
        heads, batch, num_rows, _ = products.shape
        begin, stop = max(0, self.lowest), min(num_columns, num_rows + self.highest)
        strides = products.stride()
        # entry (r, c) is product (r, c − r − lowest), at r·stride + (c − r − lowest) = r·(stride − 1) + c − lowest
        view = products.as_strided(
            (batch, heads, num_rows, max(0, stop - begin)),
            (strides[1], strides[0], strides[2] - 1, 1),
            products.storage_offset() + begin - self.lowest,
        )
        return slice(begin, max(begin, stop)), view

    def taken_from(self, x: Tensor) -> Tensor:
        """The diagonals of a matrix (B, H, rows, columns): (H, B, rows, diagonals), zero outside the matrix."""
        batch, heads, num_rows, num_columns = x.shape
        left, right = max(0, -self.lowest), max(0, num_rows + self.highest - num_columns)
        x = F.pad(x, (left, right)) if left or right else x
        strides = x.stride()
        # number i of row r is entry (r, r + lowest + i), which the zeros on the left move: one row on is one column on
        return x.as_strided(
            (heads, batch, num_rows, len(self)),
            (strides[1], strides[0], strides[2] + strides[3], strides[3]),
            x.storage_offset() + (self.lowest + left) * strides[3],
        )


@dataclass(frozen=True)
class BlockPair:
    """A query block and a key block."""

    pairs: Pairs  # their pairs; a range of queries or keys continues beyond the last one to fill up the block
    lane: Lane  # the lane of the keys
    first_query: int  # the query block's place in the group
    first_key: int  # the key block's place in the lane

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
    """Score term ``number`` in one query group, by its own ``scores`` and autograd; ``gradients`` sums up."""

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
        """Add the gradients of the term's tensors, queries and keys, from those of base-e scores (B, H, t, s)."""
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
