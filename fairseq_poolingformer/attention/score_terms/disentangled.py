"""DeBERTa's relative positions (He et al. 2020): fine ones in a window, coarse ones for global tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_poolingformer.attention.call import Call, Pairs, ScoreTerm, term_tensors
from fairseq_poolingformer.choices import UNLIMITED


@dataclass(frozen=True)
class DisentangledPosition(ScoreTerm):
    """Scores between contents and relative positions, scaled like the scores between contents (T 2.22, 2.25).

    ``score[h, i, j] = α·(q_i · c2p[h, δ(i, j)] + k_j · p2c[h, δ(i, j)])``, with
    ``δ(i, j) = clamp(i − j, −k, k − 1) + k`` (T 2.18). Where i or j is a global token the coarse tables take their
    place, of which a row serves ``global_bucket`` neighbouring distances:
    ``F(i, j) = clamp(⌊(i − j) / global_bucket⌋, −k_g, k_g − 1) + k_g`` (T 2.25).

    Both products take the row of query minus key, as the released DeBERTa and T 2.25 do; DeBERTa's paper and T 2.19
    and 2.22 write δ(j, i) in the second. DeBERTa's α is 1/sqrt(D·(1 + number of products)): pass it to the operator as
    ``scale``.

    Args:
        c2p: (H, 2k, D) positions projected as keys, K^r: content to position; None leaves this product out.
        p2c: (H, 2k, D) positions projected as queries, Q^r: position to content; None leaves this product out.
        global_c2p: (H, 2k_g, D) the coarse positions projected as keys; None, or given together with ``c2p``.
        global_p2c: (H, 2k_g, D) the coarse positions projected as queries; None, or given together with ``p2c``.
        global_bucket: tokens that share a row of the coarse tables: N/k_g, rounded up, for texts of up to N tokens.

    Raises:
        ValueError: the tables do not go together.
    """

    c2p: Tensor | None = None
    p2c: Tensor | None = None
    global_c2p: Tensor | None = None
    global_p2c: Tensor | None = None
    global_bucket: int = 1

    def __post_init__(self) -> None:
        if self.c2p is None and self.p2c is None:
            raise ValueError("a DisentangledPosition needs a table: give c2p, p2c, or both")
        for name, x in term_tensors(self).items():
            if x.dim() != 3 or x.size(1) % 2 or x.size(1) == 0:
                raise ValueError(f"{name} must be (H, 2k, D), got {tuple(x.shape)}")
        fine, coarse = (self.c2p, self.p2c), (self.global_c2p, self.global_p2c)
        for first, second in (fine, coarse):
            if first is not None and second is not None and first.shape != second.shape:
                raise ValueError(
                    "c2p and p2c must have one shape, and so must global_c2p and global_p2c; got "
                    f"{tuple(first.shape)} and {tuple(second.shape)}"
                )
        if coarse != (None, None) and any((x is None) != (y is None) for x, y in zip(fine, coarse, strict=True)):
            raise ValueError("give global_c2p with c2p and global_p2c with p2c, or no coarse table at all")
        if not isinstance(self.global_bucket, int) or self.global_bucket < 1:
            raise ValueError(f"global_bucket must be an integer >= 1, got {self.global_bucket!r}")

    @property
    def max_relative_positions(self) -> int:
        """k."""
        return (self.p2c if self.c2p is None else self.c2p).size(1) // 2

    def why_not(self, call: Call) -> str | None:
        """A window must not reach beyond k (T 2.24), and global tokens need tables of their own.

        ``Window.unlimited()`` is DeBERTa's own attention, in which all distances beyond k take the outermost rows.
        """
        heads, head_dim = call.query.size(1), call.query.size(3)
        for name, x in term_tensors(self).items():
            if x.size(0) != heads or x.size(2) != head_dim:
                return f"{name} must be (H, 2k, D) = ({heads}, 2k, {head_dim}) as query has it, got {tuple(x.shape)}"
            if x.device != call.query.device:
                return f"{name} is on {x.device}, query is on {call.query.device}"
        if call.pooling is not None:
            return "its positions are those of tokens, pooled keys have none; leave it out with pooling"
        limited = [side for side in (call.window.left, call.window.right) if side != UNLIMITED]
        farthest, k = max(limited, default=0) * max(call.window.head_dilations(heads)), self.max_relative_positions
        if farthest > k:
            return (
                f"the window reaches {farthest} tokens, relative positions only k = {k}; give tables of at least "
                f"{2 * farthest} rows, a smaller window, or Window.unlimited(), where distances beyond k share a row"
            )
        if call.masks.global_tokens is not None and limited and self.global_c2p is self.global_p2c is None:
            return f"global tokens see farther than k = {k}; give global_c2p and global_p2c for them"
        return None

    def scores(self, pairs: Pairs) -> Tensor:
        """(B, H, t, s), as the equations say: multiply with every row, then pick each pair's own."""
        if pairs.with_global is False or self.global_c2p is self.global_p2c is None:
            return self._scores(pairs, self.c2p, self.p2c, bucket=1)
        coarse = self._scores(pairs, self.global_c2p, self.global_p2c, self.global_bucket)
        if pairs.with_global is True:
            return coarse
        return torch.where(pairs.with_global[:, None], coarse, self._scores(pairs, self.c2p, self.p2c, bucket=1))

    def _scores(self, pairs: Pairs, c2p: Tensor | None, p2c: Tensor | None, bucket: int) -> Tensor:
        query, key = pairs.query, pairs.key
        rows = (p2c if c2p is None else c2p).size(1)
        row = (pairs.distance(query.device) // bucket).clamp(-(rows // 2), rows // 2 - 1) + rows // 2
        row = (row if row.dim() == 3 else row[None])[:, None].expand(*query.shape[:3], key.size(2))
        scores = query.new_zeros(row.shape)
        if c2p is not None:
            products = pairs.scale * query @ c2p.to(query.dtype).transpose(1, 2)  # (B, H, t, 2k)
            scores = scores + products.gather(3, row)
        if p2c is not None:
            products = pairs.scale * key @ p2c.to(key.dtype).transpose(1, 2)  # (B, H, s, 2k)
            scores = scores + products.gather(3, row.transpose(2, 3)).transpose(2, 3)
        return scores


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

    tokens_per_row: Tensor

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
