"""Score terms: what is added to the attention scores before the softmax, besides the content product.

A score term is a frozen dataclass. Its tensor fields are differentiable inputs of the operator; ``scores`` computes the
term for some pairs only, so that a backend never needs more of it than the block at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Protocol, runtime_checkable

from torch import Tensor


@dataclass(frozen=True)
class Pairs:
    """The (query, key) pairs of a call for which a score term is wanted.

    Args:
        query_index: (t,) or (B, t) indices into the call's queries.
        key_index: (s,) or (B, s) indices into the call's keys.
        query_offset: token position of query 0.
        key_stride: tokens between neighbouring keys (1 unless the keys are pooled on a grid).
    """

    query_index: Tensor
    key_index: Tensor
    query_offset: int = 0
    key_stride: int = 1

    def distance(self) -> Tensor:
        """Position of the query minus position of the key's first token: (t, s) or (B, t, s)."""
        position = self.query_index + self.query_offset
        return position[..., :, None] - self.key_stride * self.key_index[..., None, :]


@runtime_checkable
class ScoreTerm(Protocol):
    """Anything added to the scores; implementations are frozen dataclasses with tensors among their fields."""

    def scores(self, pairs: Pairs) -> Tensor:
        """The term for some pairs, broadcastable to (B, H, t, s); -inf hides a pair."""
        ...


def term_tensors(term: ScoreTerm) -> dict[str, Tensor]:
    """The tensor fields of a score term by name: what gradients are wanted for."""
    values = ((field.name, getattr(term, field.name)) for field in fields(term))
    return {name: value for name, value in values if isinstance(value, Tensor)}


def with_tensors(term: ScoreTerm, tensors: dict[str, Tensor]) -> ScoreTerm:
    """The same term over other tensors."""
    return replace(term, **tensors)


@dataclass(frozen=True)
class RelativePositionBias:
    """One learned score per head and clamped relative distance (Shaw et al. 2018, in T5's scalar form).

    ``score[h, i, j] = table[h, clamp(i − j, −k, k) + k]``

    Args:
        table: (H, 2k + 1) scores; column k is distance 0.

    Raises:
        ValueError: the table has an even number of columns.
    """

    table: Tensor

    def __post_init__(self) -> None:
        if self.table.dim() != 2 or self.table.size(1) % 2 == 0:
            raise ValueError(f"table must be (H, 2k + 1), got {tuple(self.table.shape)}")

    def scores(self, pairs: Pairs) -> Tensor:
        """(H, t, s), or (B, H, t, s) when the pairs differ from row to row."""
        farthest = self.table.size(1) // 2
        bucket = pairs.distance().clamp(-farthest, farthest) + farthest
        gathered = self.table[:, bucket]
        return gathered.transpose(0, 1) if bucket.dim() == 3 else gathered
