"""Scores by distance: a learned one for each head, T5's; relative positions and adaptive spans of causal models."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention.call import Pairs, ScoreTerm
from fairseq_poolingformer.attention.score_terms.disentangled import DisentangledPosition


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
            raise ValueError(
                f"table must be (H, 2k + 1), one column for each distance from −k to k, got {tuple(self.table.shape)}"
            )

    def of_pools(self, kernel_size: int) -> RelativePositionBias:
        """The means of pools of κ tokens: ``score[h, i, p] = 1/κ Σ_m score[h, i, start of p + m]``."""
        farthest = self.table.size(1) // 2
        distance = torch.arange(1 - kernel_size - farthest, farthest + kernel_size, device=self.table.device)
        of_token = distance[:, None] - torch.arange(kernel_size, device=self.table.device)
        return RelativePositionBias(self.table[:, of_token.clamp(-farthest, farthest) + farthest].mean(2))

    def scores(self, pairs: Pairs) -> Tensor:
        """(H, t, s), or (B, H, t, s) when the pairs differ from row to row."""
        farthest = self.table.size(1) // 2
        diagonals = pairs.by_diagonal()
        distance = (pairs if diagonals is None else diagonals).distance(self.table.device)
        gathered = self.table[:, distance.clamp(-farthest, farthest) + farthest]
        if diagonals is not None:
            return _lay_on_diagonals(gathered.squeeze(1), len(pairs.query_index), len(pairs.key_index))
        return gathered.transpose(0, 1) if distance.dim() == 3 else gathered


def _lay_on_diagonals(x: Tensor, num_queries: int, num_keys: int) -> Tensor:
    """(H, t, s) scores from (H, t + s − 1) scores of the diagonals in the order of :meth:`Pairs.by_diagonal`.

    The result is a view in which each row begins one diagonal earlier than the row above it. Its gradient is a sum,
    which is many times faster than that of a gather.
    """
    if num_queries == 1:
        return x.unsqueeze(1)
    shorter = x.size(1) - 1
    rows = x.unsqueeze(1).expand(-1, num_queries, -1).flatten(1)[:, num_queries - 1 :]
    return rows[:, : num_queries * shorter].unflatten(1, (num_queries, shorter))[..., :num_keys]


LEAST_WEIGHT = 1e-20  # too small to change a sum in float64; the gradient of its logarithm, 1e20, fits float32


def content_to_distance(table: Tensor, reach: int) -> DisentangledPosition:
    """``score[h, i, j] = α q_i·table[h, i − j]`` (Shaw et al. 2018; terms b and d of Dai et al. 2019 §3.3).

    With Transformer-XL's u and v, pass q + u to the operator as query. The rest, α (v − u)·table[h, i − j], depends on
    the distance alone and is a :func:`distance_bias`.

    Args:
        table: (H, K, D), a row for each distance.
        reach: the farthest distance that the window shows, in tokens. Where it exceeds K − 1, no keys may be so far.
    """
    num_distances = max(table.size(1), reach + 1)
    return DisentangledPosition(c2p=F.pad(table, (0, 0, num_distances, num_distances - table.size(1))))


def distance_bias(scores: Tensor) -> RelativePositionBias:
    """``score[h, i, j] = scores[h, i − j]``.

    Args:
        scores: (H, K), one for each distance that a key may have; -inf hides the keys at a distance.
    """
    return RelativePositionBias(F.pad(scores, (scores.size(1) - 1, 0)))


def log_span_mask(span: Tensor, ramp: int, num_distances: int, nearest: int = 0) -> Tensor:
    """log m(x), ``m(x) = clamp((R + span − x)/R, 0, 1)`` (Sukhbaatar et al. 2019 §2.2; GAA eq. 1).

    Added to the scores, it multiplies the weights by m before they are normalized. x counts from the nearest byte that
    is seen: the distance itself, or the distance less 1 where a byte does not see itself, as in the published code.
    There masks of exactly 0 and 1 pass their gradient to the span, as ``torch.clamp`` did before torch 2.14; a key at 0
    has no weight, and 1e-20 times its weight here.

    Args:
        span: (H,) distance up to which a head sees fully, in tokens; float32 or float64.
        ramp: R, tokens over which m falls to 0.
        num_distances: K.
        nearest: the nearest distance that is seen, 0 or 1.

    Returns:
        (H, K) for the distances 0 … K − 1; -inf beyond R + span and for distances before ``nearest``.
    """
    x = torch.arange(num_distances, device=span.device) - nearest
    mask = (ramp + span[:, None] - x) / ramp
    hidden = (mask < 0.0) | (x < 0)
    return (mask + LEAST_WEIGHT).masked_fill(hidden | (mask > 1.0), 1.0).log().masked_fill(hidden, -torch.inf)
