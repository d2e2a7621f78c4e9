"""A learned score for each head and relative distance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairseq_poolingformer.attention.call import Pairs, ScoreTerm


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
