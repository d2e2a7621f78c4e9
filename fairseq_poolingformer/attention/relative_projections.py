"""DeBERTa's relative positions as parameters: tables that all layers share, and each layer's projections of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_poolingformer.attention.score_terms.disentangled import DisentangledPosition

RELATIVE_PRODUCTS = ("c2p", "p2c")


class CoarsePositions(nn.Embedding):
    """The table P_g of relative positions to and from global tokens, which all layers share (T 2.25).

    The state dict has the number of tokens that share a row, so that a model for another length can find the rows of
    its own distances.

    Args:
        num_rows: 2k_g.
        embed_dim: C.
        tokens_per_row: neighbouring distances that share a row.
    """

    def __init__(self, num_rows: int, embed_dim: int, tokens_per_row: int) -> None:
        super().__init__(num_rows, embed_dim)
        self.row_length = tokens_per_row
        self.register_buffer("tokens_per_row", torch.tensor(tokens_per_row))


class RelativeProjections(nn.Module):
    """One layer's projections of the shared relative positions: K^r = W_k,r P, Q^r = W_q,r P (T 2.19, 2.25).

    As in the released DeBERTa, W_q,r has a bias, W_k,r has none, and dropout is applied to the positions before both.

    Args:
        embed_dim: C.
        num_heads: H, a divisor of C.
        products: which of ``c2p`` (K^r, multiplied with queries) and ``p2c`` (Q^r, multiplied with keys).
        reach: the farthest distance, in tokens, at which level one's window sees; None for all. Rows for distances
            beyond it are not projected.
        global_bucket: tokens that share a row of the coarse table; None for a layer without one.
        dropout: probability of dropping an element of the tables in training.

    Raises:
        ValueError: ``products`` is empty, or names an unknown product.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        products: tuple[str, ...] = RELATIVE_PRODUCTS,
        reach: int | None = None,
        global_bucket: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not products or set(products) - set(RELATIVE_PRODUCTS):
            raise ValueError(f"products must be some of {RELATIVE_PRODUCTS}, got {products!r}")
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.products, self.reach, self.global_bucket = products, reach, global_bucket
        self.dropout = nn.Dropout(dropout)
        self.k_proj = self.q_proj = self.global_k_proj = self.global_q_proj = None
        if "c2p" in products:
            self.k_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        if "p2c" in products:
            self.q_proj = nn.Linear(embed_dim, embed_dim)
        if global_bucket is not None and "c2p" in products:
            self.global_k_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        if global_bucket is not None and "p2c" in products:
            self.global_q_proj = nn.Linear(embed_dim, embed_dim)

    @property
    def scale(self) -> float:
        """α = 1/sqrt((1 + number of products)·D), the scale of level one with these scores (T 2.20)."""
        return ((1 + len(self.products)) * (self.embed_dim // self.num_heads)) ** -0.5

    def forward(self, positions: Tensor, global_positions: Tensor | None = None) -> DisentangledPosition:
        """The layer's score term.

        Args:
            positions: P, (2k, C).
            global_positions: P_g, (2k_g, C); required where the layer has a ``global_bucket``.
        """
        k = positions.size(0) // 2
        if self.reach is not None and self.reach < k:
            positions = positions[k - self.reach - 1 : k + self.reach + 1]
        positions = self.dropout(positions)
        terms: dict[str, Any] = {
            "c2p": self._project(self.k_proj, positions),
            "p2c": self._project(self.q_proj, positions),
        }
        if self.global_bucket is not None:
            coarse = self.dropout(global_positions)
            terms["global_c2p"] = self._project(self.global_k_proj, coarse)
            terms["global_p2c"] = self._project(self.global_q_proj, coarse)
            terms["global_bucket"] = self.global_bucket
        return DisentangledPosition(**terms)

    def _project(self, projection: nn.Linear | None, positions: Tensor) -> Tensor | None:
        """(H, rows, D)."""
        if projection is None:
            return None
        return projection(positions).unflatten(1, (self.num_heads, -1)).transpose(0, 1)
