"""Poolingformer-Pegasus and Poolingformer-Marian for transformers: BART's layout with positions that are computed."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from transformers import (
    MarianModel,
    MarianMTModel,
    PegasusForConditionalGeneration,
    PegasusModel,
    PreTrainedConfig,
)
from transformers.models.marian.modeling_marian import (
    MarianDecoder,
    MarianEncoder,
    MarianSinusoidalPositionalEmbedding,
)
from transformers.models.pegasus.modeling_pegasus import (
    PegasusDecoder,
    PegasusEncoder,
    PegasusSinusoidalPositionalEmbedding,
)

from fairseq_poolingformer.huggingface.bart import Seq2SeqDecoder, Seq2SeqEncoder, Seq2SeqHead
from fairseq_poolingformer.huggingface.base import TwoLevelModel
from fairseq_poolingformer.huggingface.configuration import PoolingformerMarianConfig, PoolingformerPegasusConfig
from fairseq_poolingformer.huggingface.encoders import with_parts
from fairseq_poolingformer.huggingface.packaged import Packaged


class _Positions:
    """transformers' positions bit for bit, without its loop, which takes half a minute for 16,384 of 1,024 numbers."""

    def create_weight(self) -> Tensor:
        """Return the sines and then the cosines of all positions, (T, C)."""
        count, width = self.weight.shape
        angles = np.arange(count)[:, None] / [np.power(10000, 2 * (column // 2) / width) for column in range(width)]
        waves = np.concatenate([np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], axis=1)
        return torch.from_numpy(waves).float().to(self.weight.dtype)


class PegasusPositions(_Positions, PegasusSinusoidalPositionalEmbedding):
    """Pegasus' positions."""


class MarianPositions(_Positions, MarianSinusoidalPositionalEmbedding):
    """Marian's positions."""


class _Encoder(Seq2SeqEncoder):
    """An encoder with positions of any number.

    Raises:
        ValueError: the configuration asks for ``random_position_offsets``.
    """

    def _install(self, config: PreTrainedConfig) -> None:
        if config.random_position_offsets:
            raise ValueError("random_position_offsets trains learned positions, and these are computed: leave it out")
        super()._install(config)


class _Model(Packaged, TwoLevelModel):
    """Encoder and decoder with their own numbers of positions."""

    parts: tuple[type, type]

    def __init__(self, config: PreTrainedConfig) -> None:
        checkpointing = getattr(config, "gradient_checkpointing", False)  # which the first part would take for itself
        with_parts(super().__init__, *self.parts)(config)
        if checkpointing:
            self.gradient_checkpointing_enable()


class PoolingformerPegasusEncoder(_Encoder, PegasusEncoder):
    """Pegasus' encoder with two-level attention."""

    config_class = PoolingformerPegasusConfig
    parts: ClassVar = (PegasusPositions,)


class PoolingformerPegasusDecoder(Seq2SeqDecoder, PegasusDecoder):
    """Pegasus' decoder."""

    config_class = PoolingformerPegasusConfig
    parts: ClassVar = (PegasusPositions,)


class PoolingformerPegasusModel(_Model, PegasusModel):
    """Pegasus with two-level attention in the encoder."""

    config_class = PoolingformerPegasusConfig
    parts = (PoolingformerPegasusEncoder, PoolingformerPegasusDecoder)


class PoolingformerPegasusForConditionalGeneration(Seq2SeqHead, PegasusForConditionalGeneration):
    """Poolingformer-Pegasus that generates text, such as summaries."""

    config_class = PoolingformerPegasusConfig
    base_class = PoolingformerPegasusModel


class PoolingformerMarianEncoder(_Encoder, MarianEncoder):
    """Marian's encoder with two-level attention."""

    config_class = PoolingformerMarianConfig
    parts: ClassVar = (MarianPositions,)


class PoolingformerMarianDecoder(Seq2SeqDecoder, MarianDecoder):
    """Marian's decoder."""

    config_class = PoolingformerMarianConfig
    parts: ClassVar = (MarianPositions,)


class PoolingformerMarianModel(_Model, MarianModel):
    """Marian with two-level attention in the encoder."""

    config_class = PoolingformerMarianConfig
    parts = (PoolingformerMarianEncoder, PoolingformerMarianDecoder)


class PoolingformerMarianMTModel(Seq2SeqHead, MarianMTModel):
    """Poolingformer-Marian that translates."""

    config_class = PoolingformerMarianConfig
    base_class = PoolingformerMarianModel
    _keys_to_ignore_on_save = None  # positions are saved: their number is checked against the weights
