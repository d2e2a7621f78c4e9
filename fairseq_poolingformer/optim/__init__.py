"""fairseq optimizers and learning rates; importing this registers them."""

from .fused_adamw import FairseqFusedAdamW
from .staged_lr import StagedLR

__all__ = ["FairseqFusedAdamW", "StagedLR"]
