"""Validation losses that decide what a training does next, ``--patience`` and ``reduce_lr_on_plateau``, are kept."""

import logging
from collections.abc import Callable
from typing import Any

from fairseq_poolingformer.patches.patching import command_modules, replace

logger = logging.getLogger(__name__)

PATIENCE = "early_stopping"  # in a checkpoint's extra state: the best loss, and how many were no better since
PLATEAU = ("num_bad_epochs", "cooldown_counter")  # of torch's scheduler; fairseq saves its best loss only


def apply() -> None:
    """Patch what checkpoints hold of a training's validations, and fairseq-train."""
    from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
    from fairseq.trainer import Trainer

    replace(ReduceLROnPlateauLRSchedule, "state_dict", saving_the_plateau)
    replace(ReduceLROnPlateauLRSchedule, "load_state_dict", continuing_the_plateau)
    replace(Trainer, "state_dict", saving_the_patience)
    replace(Trainer, "load_checkpoint", continuing_from_the_last_loss)
    for module in command_modules("fairseq_cli.train"):
        replace(module, "train", not_beyond_the_patience)


def decides(cfg: Any) -> bool:
    """Whether a validation loss changes what a training does next, beyond the choice of its best checkpoint."""
    return cfg.checkpoint.patience > 0 or cfg.lr_scheduler._name == "reduce_lr_on_plateau"


def saving_the_plateau(original: Callable) -> Callable:
    """Save how long the loss has not fallen, not only the least one."""

    def state_dict(self: Any) -> dict[str, Any]:
        return {**original(self), **{name: getattr(self.lr_scheduler, name) for name in PLATEAU}}

    return state_dict


def continuing_the_plateau(original: Callable) -> Callable:
    """Count on from there; an older checkpoint has no count."""

    def load_state_dict(self: Any, state_dict: dict[str, Any]) -> None:
        original(self, state_dict)
        for name in PLATEAU:
            setattr(self.lr_scheduler, name, state_dict.get(name, getattr(self.lr_scheduler, name)))

    return load_state_dict


def saving_the_patience(original: Callable) -> Callable:
    """Save what fairseq keeps as attributes of a function, that is, in the process."""

    def state_dict(self: Any) -> dict[str, Any]:
        state = original(self)
        best, count = _patience()
        if best is not None:
            state["extra_state"][PATIENCE] = {"best": float(best), "num_runs": int(count)}
        return state

    return state_dict


def _functions() -> list[Callable]:
    return [module.should_stop_early for module in command_modules("fairseq_cli.train")]


def _patience() -> tuple[float | None, int]:
    """The best loss and the number of validations since then; None before the first one."""
    found = [(function.best, function.num_runs) for function in _functions() if hasattr(function, "best")]
    return found[-1] if found else (None, 0)


def continuing_from_the_last_loss(original: Callable) -> Callable:
    """Give the learning rate and ``--patience`` the losses that they had before the training ended.

    fairseq saves a checkpoint before the scheduler gets the epoch's loss, and begins the next epoch without it.
    """

    def load_checkpoint(
        self: Any, filename: str, reset_optimizer: bool = False, reset_lr_scheduler: bool = False, *args: Any, **kw: Any
    ) -> Any:
        extra_state = original(self, filename, reset_optimizer, reset_lr_scheduler, *args, **kw)
        goes_on = extra_state is not None and not reset_optimizer
        saved = extra_state.get(PATIENCE) if goes_on else None
        for function in _functions():  # a process may train several times
            vars(function).pop("best", None)
            if saved:
                function.best, function.num_runs = saved["best"], saved["num_runs"]
        iterator = extra_state.get("train_iterator", {}) if goes_on else {}
        if iterator.get("iterations_in_epoch") == 0 and iterator.get("epoch", 1) > 1:  # an epoch has just ended
            loss, ended = extra_state.get("val_loss"), iterator["epoch"] - 1
            if loss is not None and not reset_lr_scheduler:
                self.lr_step(ended, loss)
            elif loss is None and _was_due(self.cfg, ended):
                logger.warning(
                    f"{filename} was saved before epoch {ended} was validated: that loss counts neither for --patience "
                    "nor for the learning rate"
                )
        return extra_state

    return load_checkpoint


def _was_due(cfg: Any, epoch: int) -> bool:
    return decides(cfg) and not cfg.dataset.disable_validation and epoch % cfg.dataset.validate_interval == 0


def not_beyond_the_patience(original: Callable) -> Callable:
    """Leave a training as it is that ``--patience`` has ended."""

    def train(cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> tuple[list, bool]:
        best, count = _patience()
        if best is not None and 0 < cfg.checkpoint.patience <= count:
            logger.info(f"the training is finished: its last {count} validations were no better than {best}")
            return [None], True
        return original(cfg, trainer, task, epoch_itr)

    return train
