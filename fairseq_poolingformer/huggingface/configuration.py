"""BART's, mBART's and RoBERTa's configurations with the settings of the two levels, named as fairseq-train's flags."""

from __future__ import annotations

from dataclasses import dataclass

import transformers
from transformers import BartConfig, MBartConfig, RobertaConfig

from fairseq_poolingformer.huggingface.peft_targets import PeftAsks

OLDEST = (5, 5)  # older ones lose the settings that a configuration inherits, or refuse mBART's own
if tuple(map(int, transformers.__version__.split(".")[:2])) < OLDEST:
    needed = ".".join(map(str, OLDEST))
    raise ImportError(
        f"Poolingformers need transformers {needed} or later, and this is {transformers.__version__}: "
        f"pip install 'transformers>={needed}'"
    )


@dataclass(repr=False)  # transformers' own shows all settings
class TwoLevels:
    """The settings of the two levels; windows count tokens on one side, layers count from 0.

    See :class:`~fairseq_poolingformer.models.attention_flags.AttentionFlags`.
    """

    window_size: str | int = "128"
    pooled_window_size: str | int = "512"
    pooled_layers: str = "6-11"
    pool_kernel_size: int = 5
    pool_stride: int = 4
    pool_type: str = "ldconv"
    pool_alignment: str = "grid"
    ldconv_heads: int = 1
    pool_mix: bool = False
    pool_share_weights: bool = False
    pooled_init: str = "random"
    global_tokens: int = 1
    separate_global_projections: bool = False
    attention_backend: str | None = None


class PoolingformerBartConfig(PeftAsks, TwoLevels, BartConfig):
    """BART's configuration with the two levels.

    ``max_position_embeddings`` is the encoder's, ``max_decoder_position_embeddings`` the decoder's.
    """

    model_type = "poolingformer-bart"

    max_position_embeddings: int = 4096
    max_decoder_position_embeddings: int = 1024


class PoolingformerMBartConfig(PeftAsks, TwoLevels, MBartConfig):
    """mBART's configuration with the two levels; positions as in :class:`PoolingformerBartConfig`."""

    model_type = "poolingformer-mbart"

    max_position_embeddings: int = 4096
    max_decoder_position_embeddings: int = 1024


class PoolingformerRobertaConfig(PeftAsks, TwoLevels, RobertaConfig):
    """RoBERTa's configuration with the two levels, and with DeBERTa's relative positions where they are asked for.

    As in RoBERTa, ``max_position_embeddings`` is two more than the tokens that the model reads.
    """

    model_type = "poolingformer-roberta"

    max_position_embeddings: int = 4098
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    pooled_layers: str = "6-8"
    relative_attention: str = "none"
    max_relative_positions: int = 512
    global_relative_positions: int = 64
    absolute_positions: bool = True
