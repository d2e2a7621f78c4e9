"""Score terms: what is added to the attention scores before the softmax, besides the content product.

A score term is a frozen dataclass. Its tensor fields are differentiable inputs of the operator; ``scores`` computes the
term for some pairs only, so that a backend never needs more of it than the block at hand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from fairseq_poolingformer.attention.call import Call


@dataclass(frozen=True)
class Pairs:
    """The (query, key) pairs of a call for which a score term is wanted.

    Args:
        query_index: indices into the call's queries: a range of t, or a (t,) or (B, t) tensor.
        key_index: indices into the call's keys: a range of s, or a (s,) or (B, s) tensor.
        query_offset: token position of query 0.
        key_offset: token at which key 0 starts (0 unless the keys are pooled with query alignment).
        key_stride: tokens between neighbouring keys (1 unless the keys are pooled on a grid).
        query: (B, H, t, D) these queries; None where no term is asked that reads them.
        key: (B, H, s, D) these keys; None likewise.
        scale: α, for terms that are scaled as the content product is.
        with_global: whether the query or the key is a global token: one answer for all pairs, or (B, t, s) bool.
    """

    query_index: range | Tensor
    key_index: range | Tensor
    query_offset: int = 0
    key_offset: int = 0
    key_stride: int = 1
    query: Tensor | None = None
    key: Tensor | None = None
    scale: float = 1.0
    with_global: bool | Tensor = False

    def distance(self, device: torch.device) -> Tensor:
        """Position of the query minus position of the key's first token: (t, s) or (B, t, s)."""
        position = _on(device, self.query_index) + self.query_offset
        start = self.key_stride * _on(device, self.key_index) + self.key_offset
        return position[..., :, None] - start[..., None, :]

    def by_diagonal(self) -> Pairs | None:
        """One pair for each diagonal of neighbours' pairs, from the lower left to the upper right; None of others.

        On a diagonal all distances are the same: (t, s) pairs have t + s − 1.
        """
        queries, keys = self.query_index, self.key_index
        if not (isinstance(queries, range) and isinstance(keys, range)) or queries.step != self.key_stride * keys.step:
            return None
        places = range(keys.start, keys.start + (len(queries) + len(keys) - 1) * keys.step, keys.step)
        return replace(self, query_index=queries[-1:], key_index=places, query=None, key=None)


def _on(device: torch.device, index: range | Tensor) -> Tensor:
    if isinstance(index, range):
        return torch.arange(index.start, index.stop, index.step, device=device)
    return index.to(device)


class ScoreTerm(ABC):
    """Anything added to the scores; implementations are frozen dataclasses with tensors among their fields.

    A tensor field is (H, …), or (1, …) for all heads alike.
    """

    @abstractmethod
    def scores(self, pairs: Pairs) -> Tensor:
        """The term for some pairs, broadcastable to (B, H, t, s); -inf hides a pair."""

    def why_not(self, call: Call) -> str | None:
        """The reason why the term has no meaning in a call, and what to do; None where it has."""
        return None


def term_tensors(term: ScoreTerm) -> dict[str, Tensor]:
    """The tensor fields of a score term by name: what gradients are wanted for."""
    values = ((item.name, getattr(term, item.name)) for item in fields(term))
    return {name: value for name, value in values if isinstance(value, Tensor)}


def with_tensors(term: ScoreTerm, tensors: dict[str, Tensor]) -> ScoreTerm:
    """The same term over other tensors."""
    return replace(term, **tensors)


def of_heads(x: Tensor, heads: slice, num_heads: int) -> Tensor:
    """The share of some of the call's heads in a score term's tensor (H, …); all of one that is (1, …)."""
    return x[heads] if x.size(0) == num_heads else x


@dataclass(frozen=True)
class RelativePositionBias(ScoreTerm):
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
        diagonals = pairs.by_diagonal()
        distance = (pairs if diagonals is None else diagonals).distance(self.table.device)
        gathered = self.table[:, distance.clamp(-farthest, farthest) + farthest]
        if diagonals is not None:
            return _laid_on_diagonals(gathered.squeeze(1), len(pairs.query_index), len(pairs.key_index))
        return gathered.transpose(0, 1) if distance.dim() == 3 else gathered


def _laid_on_diagonals(x: Tensor, num_queries: int, num_keys: int) -> Tensor:
    """(H, t + s − 1) values of the diagonals, as :meth:`Pairs.by_diagonal` has them: (H, t, s).

    A view of rows that begin one diagonal earlier each, whose gradient is a sum: many times faster to find than that of
    a gather.
    """
    if num_queries == 1:
        return x.unsqueeze(1)
    shorter = x.size(1) - 1
    rows = x.unsqueeze(1).expand(-1, num_queries, -1).flatten(1)[:, num_queries - 1 :]
    return rows[:, : num_queries * shorter].unflatten(1, (num_queries, shorter))[..., :num_keys]
