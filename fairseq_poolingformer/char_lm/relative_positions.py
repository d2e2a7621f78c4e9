"""Relative positions of causal attention: scores of how far back a key lies, alone and with the query's content."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_poolingformer.training.recompute import SeededDropout


@dataclass(frozen=True)
class DistanceScores:
    """Relative positions add ``α q_i·by_content[i − j] + alone[i − j]`` to the score ``α q_i·k_j``."""

    query: Tensor
    by_content: Tensor
    alone: Tensor | None = None


class LearnedDistances(nn.Module):
    """``α(q_i·k_j + q_i·p_{i−j})``: a vector p for every distance (Shaw et al. 2018; Sukhbaatar et al. 2019 §2.1)."""

    def __init__(self, max_distance: int, head_dim: int, nearest: int = 0) -> None:
        super().__init__()
        self.nearest = nearest
        self.weight = nn.Parameter(torch.randn(max_distance + 1 - nearest, head_dim))

    def forward(self, num_distances: int) -> Tensor:
        """(K, D) vectors of the distances 0 … K − 1; zeros for a distance without a vector."""
        return F.pad(self.weight[: num_distances - self.nearest], (0, 0, self.nearest, 0))

    @staticmethod
    def scores(query: Tensor, vectors: Tensor) -> DistanceScores:
        """The scores of the distances 0 … K − 1."""
        return DistanceScores(query, vectors.expand(query.size(1), -1, -1))


class SinusoidalPositions(nn.Module):
    """r of Transformer-XL: sines and cosines of every distance, the same for all layers (Dai et al. 2019 §3.3)."""

    def __init__(self, embed_dim: int, dropout: float) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.farthest: int | None = None
        self.dropout = SeededDropout(dropout, module_name=type(self).__name__)

    def forward(self, num_distances: int, like: Tensor) -> Tensor:
        """(K, C) r of the distances 0 … K − 1, in the dtype and on the device of ``like``."""
        return self.dropout(sinusoids(num_distances, self.embed_dim, like.device, self.farthest).to(like.dtype))


class ProjectedPositions(nn.Module):
    """A layer's ``α((q_i + u)·k_j + (q_i + v)·W_r r_{i−j})``; layers may share u and v (Dai et al. 2019 §3.3)."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.r_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, embed_dim // num_heads))
        self.position_bias = nn.Parameter(torch.zeros(num_heads, embed_dim // num_heads))
        self.farthest: int | None = None
        self._kept: tuple[object, Tensor] | None = None

    def forward(self, query: Tensor, num_distances: int, scale: float, positions: Tensor | None) -> DistanceScores:
        """The scores of the distances 0 … K − 1."""
        if positions is None:
            table = self._kept_table(num_distances)
        else:
            self._kept = None  # an update may follow, and most optimizers change a weight without a new version of it
            table = self._project(positions[:num_distances])
        table = table.to(query.dtype)
        difference = (self.position_bias - self.content_bias).to(query.dtype)  # u is in the query already
        alone = scale * (table @ difference.unsqueeze(-1)).squeeze(-1)
        return DistanceScores(query + self.content_bias[:, None], table, alone)

    def train(self, mode: bool = True) -> ProjectedPositions:
        """Set the mode as torch does, and forget the kept W_r r."""
        self._kept = None
        return super().train(mode)

    def _kept_table(self, num_distances: int) -> Tensor:
        weight = self.r_proj.weight
        state = (weight.data_ptr(), weight._version, weight.dtype, self.farthest)
        if self._kept is None or self._kept[0] != state or self._kept[1].size(1) < num_distances:
            rounded = 1 << (num_distances - 1).bit_length()
            positions = sinusoids(rounded, weight.size(1), weight.device, self.farthest)
            self._kept = state, self._project(positions.to(weight.dtype))
        return self._kept[1][:, :num_distances]

    def _project(self, positions: Tensor) -> Tensor:
        """W_r r, (H, K, D)."""
        return self.r_proj(positions).unflatten(-1, (self.num_heads, -1)).transpose(0, 1)


def sinusoids(num_distances: int, embed_dim: int, device: torch.device, farthest: int | None = None) -> Tensor:
    """r, (num_distances, C): sines then cosines, wavelengths 2π to 10,000·2π; beyond ``farthest``, that one's r."""
    frequency = 10_000 ** (-torch.arange(0, embed_dim, 2, dtype=torch.float64, device=device) / embed_dim)
    distance = torch.arange(num_distances, dtype=torch.float64, device=device)
    if farthest is not None:
        distance = distance.clamp(max=farthest)
    angle = distance[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=-1)
