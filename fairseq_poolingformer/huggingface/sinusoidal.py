"""Positions that are computed, as Pegasus and Marian have them in BART's layout."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig

from fairseq_poolingformer.huggingface.bart import Seq2SeqEncoder


class ComputedPositions:
    """transformers' positions bit for bit, without its loop, which takes half a minute for 16,384 of 1,024 numbers."""

    def create_weight(self) -> Tensor:
        """Return the sines and then the cosines of all positions, (T, C)."""
        count, width = self.weight.shape
        angles = np.arange(count)[:, None] / [np.power(10000, 2 * (column // 2) / width) for column in range(width)]
        waves = np.concatenate([np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], axis=1)
        return torch.from_numpy(waves).float().to(self.weight.dtype)


class ComputedEncoder(Seq2SeqEncoder):
    """An encoder with positions of any number."""

    def _install(self, config: PreTrainedConfig) -> None:
        if config.random_position_offsets:
            raise ValueError("random_position_offsets trains learned positions, and these are computed: leave it out")
        super()._install(config)
