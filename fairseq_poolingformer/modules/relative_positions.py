"""Relative positions of causal attention: what a query's content says about how far back a key lies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class DistanceScores:
    """What relative positions add to the scores ``α q_i·k_j``: ``α q_i·by_content[i − j] + alone[i − j]``.

    Args:
        query: (B, H, T, D) q.
        by_content: (H, K, D).
        alone: (H, K), or None.
    """

    query: Tensor
    by_content: Tensor
    alone: Tensor | None = None


class LearnedRelativePositions(nn.Module):
    """A vector p for every distance, the same for all layers and heads (Shaw et al. 2018; Sukhbaatar et al. 2019 §2.1).

    ``score[i, j] = α(q_i·k_j + q_i·p_{i−j})``

    Args:
        max_distance: the farthest.
        head_dim: D.
    """

    def __init__(self, max_distance: int, head_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(max_distance + 1, head_dim))

    def forward(self, query: Tensor, num_distances: int, scale: float) -> DistanceScores:
        """The scores of distances.

        Args:
            query: (B, H, T, D).
            num_distances: K, they are wanted for 0 … K − 1.
            scale: α.
        """
        return DistanceScores(query, self.weight[:num_distances].expand(query.size(1), -1, -1))


class SinusoidalRelativePositions(nn.Module):
    """Transformer-XL's positions (Dai et al. 2019 §3.3): ``score[i, j] = α((q_i + u)·k_j + (q_i + v)·W_r r_{i−j})``.

    r_d holds sin and cos of d at C/2 frequencies; u and v are learned, one each for a head.

    Args:
        embed_dim: C, even.
        num_heads: H.
    """

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.r_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, embed_dim // num_heads))
        self.position_bias = nn.Parameter(torch.zeros(num_heads, embed_dim // num_heads))
        self._kept: tuple[object, Tensor] | None = None

    def forward(self, query: Tensor, num_distances: int, scale: float) -> DistanceScores:
        """See :meth:`LearnedRelativePositions.forward`."""
        table = self._table(num_distances).to(query.dtype)
        difference = (self.position_bias - self.content_bias).to(query.dtype)  # u is in the query already
        alone = scale * (table @ difference.unsqueeze(-1)).squeeze(-1)
        return DistanceScores(query + self.content_bias[:, None], table, alone)

    def train(self, mode: bool = True) -> SinusoidalRelativePositions:
        """As torch's; forgets what was kept for W_r as it was."""
        self._kept = None
        return super().train(mode)

    def _table(self, num_distances: int) -> Tensor:
        """W_r r, (H, num_distances, D); kept from call to call where nothing is trained, as in sampling."""
        if torch.is_grad_enabled():
            self._kept = None  # an update may follow, and most optimizers change a weight without a new version of it
            return self._project(num_distances)
        weight = self.r_proj.weight
        state = (weight.data_ptr(), weight._version, weight.dtype)
        if self._kept is None or self._kept[0] != state or self._kept[1].size(1) < num_distances:
            self._kept = state, self._project(1 << (num_distances - 1).bit_length())
        return self._kept[1][:, :num_distances]

    def _project(self, num_distances: int) -> Tensor:
        weight = self.r_proj.weight
        positions = sinusoids(num_distances, weight.size(1), weight.device).to(weight.dtype)
        return self.r_proj(positions).unflatten(-1, (self.num_heads, -1)).transpose(0, 1)


def sinusoids(num_distances: int, embed_dim: int, device: torch.device) -> Tensor:
    """r, (num_distances, C): sin in the first half, cos in the second, wavelengths from 2π to 10,000·2π."""
    frequency = 10_000 ** (-torch.arange(0, embed_dim, 2, dtype=torch.float64, device=device) / embed_dim)
    angle = torch.arange(num_distances, dtype=torch.float64, device=device)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=-1)
