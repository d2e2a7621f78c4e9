"""fairseq optimizers and learning rates; importing this registers them."""

from fairseq_poolingformer.optim.clipped_adagrad import FairseqClippedAdagrad
from fairseq_poolingformer.optim.fused_adamw import FairseqFusedAdamW
from fairseq_poolingformer.optim.staged_lr import StagedLR

__all__ = ["FairseqClippedAdagrad", "FairseqFusedAdamW", "StagedLR"]
