"""Configurations: BART's and RoBERTa's with the settings of the two levels, named as the flags of fairseq-train."""

from __future__ import annotations

from transformers import BartConfig, RobertaConfig


class PoolingformerBartConfig(BartConfig):
    """BART's configuration with the two levels; windows count tokens on one side, layers count from 0.

    ``max_position_embeddings`` is the encoder's, ``max_decoder_position_embeddings`` the decoder's.
    """

    model_type = "poolingformer-bart"

    max_position_embeddings: int = 4096
    max_decoder_position_embeddings: int = 1024
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


class PoolingformerRobertaConfig(RobertaConfig):
    """RoBERTa's configuration with the two levels; windows count tokens on one side, layers count from 0.

    As in RoBERTa, ``max_position_embeddings`` is two more than the tokens that the model reads.
    """

    model_type = "poolingformer-roberta"

    max_position_embeddings: int = 4098
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    window_size: str | int = "128"
    pooled_window_size: str | int = "512"
    pooled_layers: str = "6-8"
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
