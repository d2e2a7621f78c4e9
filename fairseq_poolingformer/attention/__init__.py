"""Two-level attention for long sequences, in plain PyTorch: this package does not import fairseq."""

from fairseq_poolingformer.attention.backends import BACKENDS
from fairseq_poolingformer.attention.call import Pairs, ScoreTerm
from fairseq_poolingformer.attention.freed_memory import keep_freed_memory
from fairseq_poolingformer.attention.functional import band_attention
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.masks import Masks
from fairseq_poolingformer.attention.modules import TwoLevelAttention
from fairseq_poolingformer.attention.patterns import Pooling, Window, visible_pairs
from fairseq_poolingformer.attention.pooling import pool_keys
from fairseq_poolingformer.attention.probabilities import BandWeights, LevelWeights, band_weights
from fairseq_poolingformer.attention.recorded_weights import recorded_weights
from fairseq_poolingformer.attention.rotary import Rotary
from fairseq_poolingformer.attention.score_terms.disentangled import DisentangledPosition, RelativeProjections
from fairseq_poolingformer.attention.score_terms.relative_bias import RelativePositionBias
from fairseq_poolingformer.choices import POOL_TYPES

__all__ = [
    "BACKENDS",
    "POOL_TYPES",
    "BandWeights",
    "DisentangledPosition",
    "GlobalTokens",
    "LevelWeights",
    "Masks",
    "Pairs",
    "Pooling",
    "RelativePositionBias",
    "RelativeProjections",
    "Rotary",
    "ScoreTerm",
    "TwoLevelAttention",
    "Window",
    "band_attention",
    "band_weights",
    "keep_freed_memory",
    "pool_keys",
    "recorded_weights",
    "visible_pairs",
]
