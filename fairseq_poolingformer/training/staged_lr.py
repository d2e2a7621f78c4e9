"""fairseq's ``--lr-scheduler staged``."""

from dataclasses import dataclass, field

from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II


@dataclass
class StagedLRConfig(FairseqDataclass):
    stage_first_update: int = field(default=0, metadata={"help": "number of updates before this stage of the training"})
    warmup_updates: int = field(
        default=0, metadata={"help": "updates of the stage in which the learning rate rises to --lr, linearly"}
    )
    lr: list[float] = field(default=II("optimization.lr"))


@register_lr_scheduler("staged", dataclass=StagedLRConfig)
class StagedLR(FairseqLRScheduler):
    """A constant learning rate with a warm-up at the beginning of each stage (Longformer, table 12).

    A stage continues from the checkpoint of the stage before, with its number of updates; fairseq's ``fixed`` would
    warm up in the first stage only.
    """

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
