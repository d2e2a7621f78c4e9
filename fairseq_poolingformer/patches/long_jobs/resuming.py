"""A resumed training goes on as if it had not been stopped: its place in the epoch, its precision, its losses."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.patches.patching import command_modules

logger = logging.getLogger(__name__)

PROCESSES = "processes"  # the entry in the state of the iterator
SCALER = "loss_scaler"  # in the optimizer's state: when the loss scale has changed
COUNTS = ("_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")  # of fairseq's scaler
PATIENCE = "early_stopping"  # in a checkpoint's extra state: the best loss, and how many were no better since
PLATEAU = ("num_bad_epochs", "cooldown_counter")  # of torch's scheduler; fairseq saves its best loss only


def save_number_of_processes(original: Callable, self: Any) -> dict[str, Any]:
    """Save the number of processes beside the number of batches that each has read."""
    return {**original(self), PROCESSES: self.num_shards}


def continue_where_all_processes_were(original: Callable, self: Any, state_dict: dict[str, Any]) -> None:
    """Continue an epoch where all processes together were, and say what another number of them changes.

    fairseq continues at the same number of batches of each process: twice as many processes then skip as many batches
    as were read, half as many read half of them again.
    """
    before, now = state_dict.get(PROCESSES, self.num_shards), self.num_shards
    if before != now:
        read = state_dict.get("iterations_in_epoch", 0) * before
        state_dict = {**state_dict, "iterations_in_epoch": read // now}
        again = f", of which {read % now} are read again" if read % now else ""
        logger.warning(
            f"the checkpoint was saved by {before} processes and is continued by {now}, where those that share batches "
            f"count as one. {read} batches of this epoch have been read{again}. An update is made of {now} × "
            "--update-freq batches: choose an --update-freq that keeps the product. Dropout and other random numbers "
            "differ from those of a run without the change"
        )
    original(self, state_dict)


def save_float32(original: Callable, self: Any) -> dict[str, Any]:
    """Save the float32 parameters of ``--fp16`` and ``--bf16``, which updates are added to.

    fairseq saves the half-precision copies, in float32 as well: a file of the same size, but a training that is
    continued from it has lost what the updates of some thousand steps have added below half precision.
    """
    state = original(self)
    for name, parameter in _float32_parameters(self):
        state["model"][name] = parameter.detach()
    return state


def load_float32(
    original: Callable, self: Any, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any
) -> Any:
    """Give the optimizer of ``--fp16`` and ``--bf16`` the float32 parameters of the checkpoint."""
    if reset_optimizer or not (self.cfg.common.fp16 or self.cfg.common.bf16):
        return original(self, filename, reset_optimizer, *args, **kwargs)
    model, read = self.model, {}

    def load_state_dict(state: dict[str, Any], *arguments: Any, **named: Any) -> Any:
        loaded = type(model).load_state_dict(model, state, *arguments, **named)
        read.update(state)  # fairseq lets go of it
        return loaded

    model.load_state_dict = load_state_dict
    try:
        extra_state = original(self, filename, reset_optimizer, *args, **kwargs)
    finally:
        del model.load_state_dict
    for name, parameter in _float32_parameters(self):
        if name in read and read[name].shape == parameter.shape:
            parameter.data.copy_(read[name])
    return extra_state


def _float32_parameters(trainer: Any) -> Iterator[tuple[str, Tensor]]:
    """The parameters that an optimizer of half precision updates, by all their names."""
    from fairseq.optim import FP16Optimizer

    optimizer = trainer.optimizer
    if not isinstance(optimizer, FP16Optimizer):
        return
    halves = [half for half in optimizer.fp16_params if half.requires_grad]
    float32 = dict(zip(map(id, halves), _unflattened(optimizer.fp32_params, halves), strict=True))
    for name, half in trainer.get_model().named_parameters(remove_duplicate=False):
        if id(half) in float32:
            yield name, float32[id(half)]


def _unflattened(parameters: Any, like: list[Tensor]) -> list[Tensor]:
    """The parameters one by one: of one device they may be a single row, in a dictionary."""
    if not isinstance(parameters, dict):
        return list(parameters)
    (row,) = parameters.values()
    parts = row.data.split([half.numel() for half in like])
    return [part.view_as(half) for part, half in zip(parts, like, strict=True)]


def save_loss_scale_counts(original: Callable, self: Any) -> dict[str, Any]:
    """Save when the loss scale of ``--fp16`` or ``--amp`` has changed, which decides when it does so again."""
    state = original(self)
    if isinstance(self.scaler, torch.amp.GradScaler):
        state[SCALER] = self.scaler.state_dict()
    elif self.scaler is not None:
        state[SCALER] = {name: getattr(self.scaler, name) for name in COUNTS}
    return state


def load_loss_scale_counts(
    original: Callable, self: Any, state_dict: dict[str, Any], optimizer_overrides: Any = None
) -> None:
    """Count on from there; an older checkpoint has no counts."""
    saved = state_dict.get(SCALER)
    original(self, {name: value for name, value in state_dict.items() if name != SCALER}, optimizer_overrides)
    if not saved or self.scaler is None:
        return
    if isinstance(self.scaler, torch.amp.GradScaler):
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(saved)
    else:
        vars(self.scaler).update({name: saved[name] for name in COUNTS if name in saved})


def decides(cfg: Any) -> bool:
    """Whether a validation loss changes what a training does next, beyond the choice of its best checkpoint."""
    return cfg.checkpoint.patience > 0 or cfg.lr_scheduler._name == "reduce_lr_on_plateau"


def save_plateau_counts(original: Callable, self: Any) -> dict[str, Any]:
    """Save how long the loss has not fallen, not only the least one."""
    return {**original(self), **{name: getattr(self.lr_scheduler, name) for name in PLATEAU}}


def load_plateau_counts(original: Callable, self: Any, state_dict: dict[str, Any]) -> None:
    """Count on from there; an older checkpoint has no count."""
    original(self, state_dict)
    for name in PLATEAU:
        setattr(self.lr_scheduler, name, state_dict.get(name, getattr(self.lr_scheduler, name)))


def save_patience(original: Callable, self: Any) -> dict[str, Any]:
    """Save what fairseq keeps as attributes of a function, that is, in the process."""
    state = original(self)
    best, count = _patience()
    if best is not None:
        state["extra_state"][PATIENCE] = {"best": float(best), "num_runs": int(count)}
    return state


def _functions() -> list[Callable]:
    return [module.should_stop_early for module in command_modules("fairseq_cli.train")]


def _patience() -> tuple[float | None, int]:
    """The best loss and the number of validations since then; None before the first one."""
    found = [(function.best, function.num_runs) for function in _functions() if hasattr(function, "best")]
    return found[-1] if found else (None, 0)


def load_validation_losses(
    original: Callable,
    self: Any,
    filename: str,
    reset_optimizer: bool = False,
    reset_lr_scheduler: bool = False,
    *args: Any,
    **kw: Any,
) -> Any:
    """Give the learning rate and ``--patience`` the losses that they had before the training ended.

    fairseq saves a checkpoint before the scheduler gets the epoch's loss, and begins the next epoch without it.
    """
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


def _was_due(cfg: Any, epoch: int) -> bool:
    return decides(cfg) and not cfg.dataset.disable_validation and epoch % cfg.dataset.validate_interval == 0


def leave_training_out_of_patience(
    original: Callable, cfg: Any, trainer: Any, task: Any, epoch_itr: Any
) -> tuple[list, bool]:
    """Leave a training as it is that ``--patience`` has ended."""
    best, count = _patience()
    if best is not None and 0 < cfg.checkpoint.patience <= count:
        logger.info(f"the training is finished: its last {count} validations were no better than {best}")
        return [None], True
    return original(cfg, trainer, task, epoch_itr)
