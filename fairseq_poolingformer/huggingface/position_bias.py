"""Scores by distance, which T5 and MPNet add in every layer: a table for the distances of their buckets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_poolingformer.attention import LevelWeights, RelativePositionBias
from fairseq_poolingformer.huggingface.attention import EncoderSelfAttention

MAX_DISTANCE = 128  # MPNet's; T5's configuration has its own


def bias_table(scores: nn.Embedding, bucket: Callable[[Tensor], Tensor], max_distance: int = MAX_DISTANCE) -> Tensor:
    """Return the scores of all distances, (H, 2·max_distance + 1), as :class:`RelativePositionBias` takes them.

    Args:
        scores: (buckets, H).
        bucket: returns the buckets of relative positions, a key's minus the query's.
        max_distance: from here on all distances have the same bucket.
    """
    distances = torch.arange(-max_distance, max_distance + 1, device=scores.weight.device)
    return scores(bucket(-distances)).t()


class BiasedSelfAttention(EncoderSelfAttention):
    """Two-level attention whose first level adds scores by distance."""

    def _arguments(self, masks: Tensor, position_bias: Tensor, **kwargs: Any) -> dict[str, Any]:
        return {**super()._arguments(masks, **kwargs), "score_terms": (RelativePositionBias(position_bias),)}


class MPNetAttention(BiasedSelfAttention):
    """In place of ``MPNetSelfAttention``."""

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor, position_bias: Tensor, output_attentions: bool = False
    ) -> tuple[Tensor, LevelWeights | None]:
        """As :meth:`EncoderSelfAttention.forward`, with ``position_bias`` of :func:`bias_table`."""
        return super().forward(hidden_states, attention_mask, output_attentions, position_bias=position_bias)
