"""Scores by distance, which MPNet and T5 add in every layer: a table with a column for each distance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_poolingformer.attention import RelativePositionBias
from fairseq_poolingformer.huggingface.attention import EncoderSelfAttention


def bias_table(scores: nn.Embedding, bucket: Callable[[Tensor], Tensor], max_distance: int) -> Tensor:
    """Return the scores of all distances, (H, 2·max_distance + 1), as :class:`RelativePositionBias` takes them."""
    distances = torch.arange(-max_distance, max_distance + 1, device=scores.weight.device)
    return scores(bucket(-distances)).t()


class BiasedSelfAttention(EncoderSelfAttention):
    """Two-level attention whose first level adds scores by distance: ``position_bias`` is the table of them."""

    def _arguments(self, masks: Tensor, position_bias: Tensor, **kwargs: Any) -> dict[str, Any]:
        return {**super()._arguments(masks, **kwargs), "score_terms": (RelativePositionBias(position_bias),)}
