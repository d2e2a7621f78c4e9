"""fairseq optimizers; importing this registers them."""

from .fused_adamw import FairseqFusedAdamW

__all__ = ["FairseqFusedAdamW"]
