"""Two-level attention for long sequences, in plain PyTorch: nothing here imports fairseq."""

from .backends import BACKENDS
from .biases import Pairs, RelativePositionBias, ScoreTerm
from .call import GlobalTokens
from .disentangled import DisentangledPosition
from .functional import band_attention
from .modules import TwoLevelAttention
from .patterns import Pooling, Window, visible_pairs
from .pooling import POOL_TYPES, pool_keys
from .relative_projections import RelativeProjections

__all__ = [
    "BACKENDS",
    "POOL_TYPES",
    "DisentangledPosition",
    "GlobalTokens",
    "Pairs",
    "Pooling",
    "RelativePositionBias",
    "RelativeProjections",
    "ScoreTerm",
    "TwoLevelAttention",
    "Window",
    "band_attention",
    "pool_keys",
    "visible_pairs",
]
