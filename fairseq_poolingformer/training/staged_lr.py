"""fairseq's ``--lr-scheduler staged``."""

from dataclasses import dataclass, field

from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from fairseq_poolingformer.command import option


@dataclass
class StagedLRConfig(FairseqDataclass):
    stage_first_update: int = option(0, "number of updates before this stage of the training")
    warmup_updates: int = option(0, "updates of the stage in which the learning rate rises to --lr, linearly")
    lr: list[float] = field(default=II("optimization.lr"))


@register_lr_scheduler("staged", dataclass=StagedLRConfig)
class StagedLR(FairseqLRScheduler):
    """A constant learning rate with a warm-up in each stage (Longformer, table 12); updates go on counting."""

    def __init__(self, cfg: StagedLRConfig, optimizer: FairseqOptimizer) -> None:
        super().__init__(cfg, optimizer)
        if len(cfg.lr) != 1:
            rates = ",".join(map(str, cfg.lr))
            raise ValueError(f"--lr-scheduler staged has one learning rate a stage, got --lr {rates}; train each stage")

    def step_update(self, num_updates: int) -> float:
        """Set the learning rate for the next update."""
        done = max(num_updates - self.cfg.stage_first_update, 0)
        rise = min(1.0, (done + 1) / max(self.cfg.warmup_updates, 1))
        self.optimizer.set_lr(self.cfg.lr[0] * rise)
        return self.optimizer.get_lr()
