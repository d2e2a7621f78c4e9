"""A layer of a language model whose attention is causal and reaches into a memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from fairseq import utils
from torch import Tensor, nn

from fairseq_poolingformer.attention import Window, band_attention
from fairseq_poolingformer.attention.score_terms.relative_bias import content_to_distance, distance_bias, log_span_mask
from fairseq_poolingformer.char_lm.relative_positions import LearnedDistances, ProjectedPositions
from fairseq_poolingformer.settings import per_layer
from fairseq_poolingformer.training.recompute import SeededDropout


def causal_windows(
    window_size: str, dilation: str, dilated_heads: int, num_layers: int, num_heads: int, *, scale: int = 1
) -> list[Window]:
    """The window of every layer, as the flags of these names say."""
    if not 0 <= dilated_heads <= num_heads:
        raise ValueError(f"--dilated-heads must be from 0 to the {num_heads} heads there are, got {dilated_heads}")
    if scale < 1:
        raise ValueError(f"--window-scale must be 1 or more, got {scale}")
    dilations = per_layer("--dilation", dilation, num_layers)
    if set(dilations) != {1} and not dilated_heads:
        raise ValueError(f"--dilation {dilation} needs --dilated-heads: there are no heads to dilate")
    if window_size == "none":
        if scale != 1:
            raise ValueError(f"--window-scale {scale} needs --window-size: there are no windows to widen")
        if set(dilations) != {1}:
            raise ValueError("--dilation needs --window-size: heads that see everything have no taps to spread")
        return [Window.unlimited(causal=True)] * num_layers
    sizes, plain = per_layer("--window-size", window_size, num_layers), num_heads - dilated_heads
    if min(sizes) < 1:
        raise ValueError(f"--window-size must be 1 or more in every layer, got {window_size}")
    return [
        Window(left * scale, 0, (1,) * plain + (step,) * dilated_heads)
        for left, step in zip(sizes, dilations, strict=True)
    ]


@dataclass(frozen=True)
class View:
    """The keys that a layer sees in one forward pass, and those that it keeps for the next."""

    window: Window
    reach: int | None = None  # the farthest distance that a head sees; None for everything
    span: Tensor | None = None  # (H,) each head's, in positions; None for hard windows
    ramp: int = 1  # positions over which a head's sight fades behind its span
    nearest: int = 0  # the nearest distance that a head sees, 0 or 1; 1 needs spans
    zero_keys: bool = False  # whether keys and values of zeros stand before the beginning of the text
    keep: int = 0  # positions to keep for the next block
    keep_projected: bool = False  # their keys and values instead of the layer's inputs

    def num_keys(self, num_positions: int, num_queries: int) -> int:
        """S, where the memory and the block together have so many positions and the block so many of them."""
        return max(num_positions, num_queries + self.reach) if self.zero_keys else num_positions

    def num_distances(self, num_keys: int) -> int:
        """K: the distances 0 … K − 1 occur among so many keys."""
        return num_keys if self.reach is None else min(num_keys, self.reach + 1)

    def window_over(self, num_keys: int) -> Window:
        """The window over so many keys: no wider than they need, so that its tables are small."""
        if self.reach is None:
            return self.window
        return replace(self.window, left=min(self.window.left, num_keys - 1))

    def bias(self, alone: Tensor | None, num_distances: int) -> Tensor | None:
        """(H, K) scores of the distances 0 … K − 1: ``alone`` plus the spans' mask; None for neither."""
        if self.span is None:
            return alone
        mask = log_span_mask(self.span, self.ramp, num_distances, self.nearest)
        return mask if alone is None else alone + mask


class CausalAttention(nn.Module):
    """Projections, relative positions and the operator."""

    def __init__(self, embed_dim: int, num_heads: int, *, dropout: float, backend: str | None) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(
                f"--decoder-embed-dim must be a multiple of --decoder-attention-heads, got {embed_dim} and {num_heads}"
            )
        self.num_heads, self.dropout, self.backend = num_heads, dropout, backend
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim, bias=False) for _ in range(4)
        )

    def forward(
        self,
        x: Tensor,
        key: Tensor,
        value: Tensor,
        own_positions: ProjectedPositions | None,
        positions: Tensor | None,
        view: View,
    ) -> Tensor:
        """Attend from x (T, B, C) to projected keys and values (S, B, C); ``positions`` as CausalLayer's."""
        query, key, value = (self._split(y) for y in (self.q_proj(x), key, value))
        scale = query.size(-1) ** -0.5
        num_distances = view.num_distances(key.size(2))
        if own_positions is None:
            scores = LearnedDistances.scores(query, positions[:num_distances])
        else:
            scores = own_positions(query, num_distances, scale, positions)
        window, bias = view.window_over(key.size(2)), view.bias(scores.alone, num_distances)
        reach = 0 if view.reach is None else window.left * max(window.head_dilations(self.num_heads))
        terms = [content_to_distance(scores.by_content, reach)]
        attended = band_attention(
            scores.query,
            key,
            value,
            window=window,
            score_terms=terms if bias is None else [*terms, distance_bias(bias)],
            query_offset=key.size(2) - query.size(2),
            dropout_p=self.dropout if self.training else 0.0,
            scale=scale,
            backend=self.backend,
        )
        return self.out_proj(attended.permute(2, 0, 1, 3).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).permute(1, 2, 0, 3)


class FeedForward(nn.Module):
    """``W_2 f(W_1 x)``, or with ``gated`` GAA's ``W_3 (f(W_1 x) ⊙ W_2 x)`` (its eq. 4; Shazeer 2020)."""

    def __init__(self, embed_dim: int, ffn_dim: int, *, activation: str, gated: bool, dropout: float) -> None:
        super().__init__()
        self.activation = utils.get_activation_fn(activation)
        self.fc1, self.fc2 = nn.Linear(embed_dim, ffn_dim), nn.Linear(ffn_dim, embed_dim)
        self.gate = nn.Linear(embed_dim, ffn_dim) if gated else None
        self.dropout = SeededDropout(dropout, module_name=type(self).__name__)

    def forward(self, x: Tensor) -> Tensor:
        """(…, C) to (…, C)."""
        hidden = self.activation(self.fc1(x))
        if self.gate is not None:
            hidden = hidden * self.gate(x)
        return self.fc2(self.dropout(hidden))


class CausalLayer(nn.Module):
    """Causal attention and a feed-forward layer, residual; ``pre_norm`` normalizes their inputs, not the sums."""

    def __init__(
        self,
        attention: CausalAttention,
        feed_forward: FeedForward,
        *,
        embed_dim: int,
        pre_norm: bool,
        dropout: float,
        positions: ProjectedPositions | None,
    ) -> None:
        super().__init__()
        self.attention, self.feed_forward, self.positions = attention, feed_forward, positions
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
        self.pre_norm = pre_norm
        self.dropout = SeededDropout(dropout, module_name=type(self).__name__)

    def forward(
        self, x: Tensor, memory: Tensor | None, positions: Tensor | None, view: View
    ) -> tuple[Tensor, Tensor | None]:
        """Continue a text x (T, B, C) from its memory; (T, B, C), and the memory for the next block without gradient.

        The memory has the layer's inputs (M, B, C) at the positions before, or their keys and values (M, B, 2C).
        ``positions`` are (K or more, D) learned vectors of the distances, or (K or more, C) sinusoids, which the layer
        projects; None for sinusoids whose projection the layer has kept.
        """
        length, channels = len(x), x.size(-1)
        inputs = x if memory is None or memory.size(-1) > channels else torch.cat([memory, x])
        normed = self.attention_norm(inputs) if self.pre_norm else inputs
        key, value = self.attention.k_proj(normed), self.attention.v_proj(normed)
        if memory is not None and memory.size(-1) > channels:
            key, value = (torch.cat(pair) for pair in zip(memory.chunk(2, dim=-1), (key, value), strict=True))
        kept = None
        if view.keep:
            kept = [y.detach()[-view.keep :] for y in ((key, value) if view.keep_projected else (inputs,))]
            kept = torch.cat(kept, dim=-1)  # a copy: otherwise the whole of what it is a part of would stay in memory
        missing = view.num_keys(len(key), length) - len(key)
        if missing:
            key, value = (F.pad(y, (0, 0, 0, 0, missing, 0)) for y in (key, value))

        attended = self.attention(normed[-length:], key, value, self.positions, positions, view)
        x = x + self.dropout(attended)
        if not self.pre_norm:
            x = self.attention_norm(x)
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x) if self.pre_norm else x))
        return x if self.pre_norm else self.feed_forward_norm(x), kept
