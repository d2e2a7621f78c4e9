"""A resumed training goes on as if it had not been stopped, and refuses a checkpoint that means something else."""

import logging
import os
import re
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.checkpoints import (
    OPTIMIZER,
    CheckpointError,
    MissingCheckpointError,
    checked_states,
    explained,
)
from fairseq_poolingformer.patching import command_module, copies
from fairseq_poolingformer.settings import layer_numbers, settings_with

logger = logging.getLogger(__name__)

PACKAGE = __package__.partition(".")[0]
SKIPPED = "skipped_updates"  # in a checkpoint's extra state, and of the trainer
SCALER = "loss_scaler"  # there: when the loss scale has changed
COUNTS = ("_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")  # of fairseq's scaler
PATIENCE = "early_stopping"  # there: the best loss, and how many were no better since
METRIC = "best_checkpoint_metric"  # there: its name, and whether more is better
PLATEAU = ("num_bad_epochs", "cooldown_counter")  # there, of torch's scheduler; fairseq saves its best loss only


def is_ours(task: Any) -> bool:
    """Whether a task is the plugin's, or made of one that is: for others, checkpoints stay what fairseq writes."""
    return is_of_plugin(type(task))


def is_of_plugin(kind: type) -> bool:
    """Whether a class is the plugin's, or made of one that is."""
    return any(base.__module__.partition(".")[0] == PACKAGE for base in kind.__mro__)


def save_what_fairseq_forgets(original: Callable, self: Any) -> dict[str, Any]:
    """Save what fairseq keeps in the process alone: loss scale, patience, skipped updates."""
    state = original(self)
    if not is_ours(self.task):
        return state
    extra = state["extra_state"]
    extra[SKIPPED] = getattr(self, SKIPPED, 0)
    extra[METRIC] = _metric(self)
    scaler = getattr(self.optimizer, "scaler", None)
    if isinstance(scaler, torch.amp.GradScaler):
        extra[SCALER] = scaler.state_dict()
    elif scaler is not None:
        extra[SCALER] = {name: getattr(scaler, name) for name in COUNTS}
    if (plateau := _plateau(self)) is not None:
        extra.update({name: getattr(plateau, name) for name in PLATEAU})
    best, count = _patience()
    if best is not None:
        extra[PATIENCE] = {"best": float(best), "num_runs": int(count)}
    return state


def load_what_fairseq_forgets(
    original: Callable,
    self: Any,
    filename: str,
    reset_optimizer: bool = False,
    reset_lr_scheduler: bool = False,
    *args: Any,
    **named: Any,
) -> Any:
    """Go on from what :func:`save_what_fairseq_forgets` saved, where the training continues."""
    # fairseq also saves before the scheduler gets the epoch's loss, and begins the next epoch without it
    from fairseq import checkpoint_utils

    if not is_ours(self.task):
        return original(self, filename, reset_optimizer, reset_lr_scheduler, *args, **named)
    extra = original(self, filename, reset_optimizer, reset_lr_scheduler, *args, **named)
    saved = extra if extra is not None and not reset_optimizer else {}
    vars(checkpoint_utils.save_checkpoint).pop("best", None)  # a process may train several times
    # losses of another metric do not compare: what was chosen by them begins anew
    former = (extra or {}).get(METRIC, _metric(self))
    is_other = former != _metric(self)
    if is_other:
        _begin_with_another_metric(self, filename, former[0])
        for name in ("best", PATIENCE, *PLATEAU):
            saved.pop(name, None)
    if saved:
        _load_loss_scale(self, saved.get(SCALER))
        setattr(self, SKIPPED, saved.get(SKIPPED, 0))
        if (plateau := _plateau(self)) is not None and not reset_lr_scheduler:
            vars(plateau).update({name: saved[name] for name in PLATEAU if name in saved})
            if is_other:
                plateau.best = plateau.mode_worse
    patience = saved.get(PATIENCE)
    # fairseq keeps it as attributes of ``should_stop_early``, which a process may have more than once
    for function in _functions():
        vars(function).pop("best", None)
        if patience:
            function.best, function.num_runs = patience["best"], patience["num_runs"]
    iterator = saved.get("train_iterator", {})
    has_ended = iterator.get("iterations_in_epoch") == 0 and iterator.get("epoch", 1) > 1  # an epoch, just before
    if has_ended and not is_other:
        loss, ended = saved.get("val_loss"), iterator["epoch"] - 1
        if loss is not None and not reset_lr_scheduler:
            self.lr_step(ended, loss)
        elif loss is None and _was_due(self.cfg.dataset, ended, self.get_num_updates()):
            logger.warning(
                f"{filename} was saved before epoch {ended} was validated: that loss counts neither for "
                "checkpoint_best.pt nor for --patience or the learning rate"
            )
    return extra


def _metric(trainer: Any) -> list[Any]:
    cfg = trainer.cfg.checkpoint
    return [cfg.best_checkpoint_metric, cfg.maximize_best_checkpoint_metric]


def _begin_with_another_metric(trainer: Any, filename: str, former: str) -> None:
    """Leave the best checkpoint by a former metric under a name with the metric, and say so."""
    if trainer.data_parallel_rank:
        return
    best = Path(filename).with_name(f"checkpoint_best{trainer.checkpoint_suffix}.pt")
    other = best.with_name(best.name.replace("_best", "_best_" + re.sub(r"\W", "_", former)))
    note = ""
    if best.is_file() and best.parent.resolve() == Path(trainer.cfg.checkpoint.save_dir).resolve():
        best.rename(other)
        note = f". The best one by {former} is {other.name} now"
    logger.warning(
        f"{filename} is of --best-checkpoint-metric {former}, which is {_metric(trainer)[0]} now: {best.name} and "
        f"--patience begin anew{note}"
    )


def _load_loss_scale(trainer: Any, saved: dict[str, Any] | None) -> None:
    scaler = getattr(trainer.optimizer, "scaler", None)
    if not saved or scaler is None:
        return
    if isinstance(scaler, torch.amp.GradScaler):
        if scaler.is_enabled():
            scaler.load_state_dict(saved)
    else:
        vars(scaler).update({name: saved[name] for name in COUNTS if name in saved})


def _plateau(trainer: Any) -> Any:
    """Torch's scheduler of ``reduce_lr_on_plateau``; None of another."""
    scheduler = getattr(trainer.lr_scheduler, "lr_scheduler", None)
    return scheduler if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau) else None


def _functions() -> list[Callable]:
    return [module.should_stop_early for module in copies(command_module("fairseq_cli.train"))]


def _patience() -> tuple[float | None, int]:
    """The best loss and the number of validations since then; None before the first one."""
    histories = [(function.best, function.num_runs) for function in _functions() if hasattr(function, "best")]
    return histories[-1] if histories else (None, 0)


def decides(cfg: Any) -> bool:
    """Whether a validation loss changes what a training does next, beyond the choice of its best checkpoint."""
    return cfg.checkpoint.patience > 0 or cfg.lr_scheduler._name == "reduce_lr_on_plateau"


def _was_due(cfg: Any, epoch: int, updates: int) -> bool:
    due = epoch % cfg.validate_interval == 0 and updates >= cfg.validate_after_updates
    return due and not cfg.disable_validation


def is_out_of_patience(cfg: Any) -> bool:
    """Whether ``--patience`` has ended a training, which is left as it is."""
    best, count = _patience()
    is_over = best is not None and 0 < cfg.checkpoint.patience <= count
    if is_over:
        logger.info(f"the training is finished: its last {count} validations were no better than {best}")
    return is_over


# a training and the checkpoint that it takes: dictionary and meaning of the parameters must be the same

# Options of a model whose parameters keep their shapes, or are quietly made anew, when the options change, and then
# compute something else than they were trained for.
MEANING = {
    *("encoder_attention_heads", "decoder_attention_heads", "activation_fn", "no_scale_embedding", "scale_embedding"),
    *("encoder_normalize_before", "decoder_normalize_before"),
    *("layernorm_embedding", "dilated_heads", "dilation", "span_ramp", "shared_span"),
    *settings_with("is_meaning"),
}
# which tokens see which: a training may go on with others, and their parameters have no mean
VISIBILITY = {"window_size", "pooled_window_size", "pool_stride", "pool_alignment", "global_tokens"}
EACH_LAYER = {*settings_with("each_layer"), "dilation"}  # one value, or one a layer


def refuse_missing_or_unfit_checkpoint(
    original: Callable, self: Any, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any
) -> Any:
    """Stop when the checkpoint that was asked for is not there or does not fit the training."""
    # fairseq would train from random weights; only its default, checkpoint_last.pt, may be missing: the first launch
    from fairseq.file_io import PathManager

    cfg = self.cfg.checkpoint
    default = os.path.join(cfg.save_dir, f"checkpoint_last{self.checkpoint_suffix}.pt")
    asked_for = cfg.restore_file != "checkpoint_last.pt" or filename != default
    if asked_for and os.path.isfile(os.path.join(filename, "config.json")):
        flag = "--restore-file" if filename == cfg.restore_file else "--finetune-from-model"
        raise MissingCheckpointError(
            f"{flag} {filename}: a folder of transformers; make a checkpoint of it with poolingformer convert "
            f"to-fairseq {filename} NEW, and give {flag} NEW/model.pt"
        )
    if asked_for and not PathManager.isfile(filename):
        raise MissingCheckpointError(
            f"the checkpoint to start from, {filename}, is not there or not a file. Correct --restore-file (or "
            "--finetune-from-model); leave it out to resume from the save directory, or to start afresh when that "
            "has no checkpoint_last.pt."
        )
    if not PathManager.isfile(filename):
        return original(self, filename, reset_optimizer, *args, **kwargs)
    with explained(filename), checked_states(partial(check, trainer=self, anew=reset_optimizer)):
        return original(self, filename, reset_optimizer, *args, **kwargs)


def check(path: str, state: Mapping[str, Any], trainer: Any, anew: bool) -> None:
    """Compare a checkpoint with the training that takes it."""
    check_dictionaries = getattr(trainer.task, "check_dictionaries", None)
    if check_dictionaries is not None:
        try:
            check_dictionaries(state.get("task_state") or {})
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}") from error
    model = trainer.get_model()
    if (anew or not state.get(OPTIMIZER)) and hasattr(model, "take_rows"):
        model.take_rows(path, state)
    before, now = state.get("cfg"), trainer.cfg
    if not before:
        return
    kinds = _kind_of_model(before), _kind_of_model(now)
    if None not in kinds and kinds[0] != kinds[1]:
        raise CheckpointError(f"{path} holds {kinds[0]}, and --arch is {kinds[1]}: give one of the same kind")
    if not anew and state.get(OPTIMIZER) and is_ours(trainer.task):
        _check_shapes(path, state["model"], trainer.get_model().state_dict())
    refused = {} if anew else changes(options_of(before.get("model")), options_of(now.get("model")))
    if refused:
        flags = [
            f"--{name.replace('_', '-')} {former} (now {value})" for name, (former, value) in sorted(refused.items())
        ]
        raise CheckpointError(
            f"{path} was trained with {', '.join(flags)}: with other values its parameters mean something else. Give "
            "the former values, or begin a new training with these parameters: --finetune-from-model, and another "
            "--save-dir"
        )


def _check_shapes(path: str, before: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> None:
    """Refuse parameters of another size, which the model could adapt and the optimizer's state of them could not."""
    others = [name for name in now if name in before and before[name].shape != now[name].shape]
    if others:
        name = others[0]
        raise CheckpointError(
            f"{path} has {tuple(before[name].shape)} as {name}, and this model {tuple(now[name].shape)}: the "
            "optimizer's state fits the former size alone. Give the flags that it was trained with (lengths are "
            "--max-source-positions, --max-positions), or begin a new training with these parameters: "
            "--finetune-from-model, and another --save-dir"
        )


def changes(
    before: Mapping[str, Any], now: Mapping[str, Any], names: Collection[str] = MEANING
) -> dict[str, tuple[str, str]]:
    """The options that both have with other values: name -> (value before, value now)."""
    both = [name for name in names if None not in (before.get(name), now.get(name)) and before[name] != now[name]]
    pairs = {name: (str(before[name]), str(now[name])) for name in both}
    return {name: pair for name, pair in pairs.items() if _value(name, pair[0]) != _value(name, pair[1])}


def _value(name: str, text: str) -> Any:
    """The value of an option's text: ``6-8`` and ``6,7,8`` are the same layers, ``4`` and ``4,4`` the same windows."""
    if name == "pooled_layers":
        return layer_numbers(text)
    values = [value.strip() for value in text.split(",")] if name in EACH_LAYER else [text]
    return values[:1] if len(set(values)) == 1 else values


def _kind_of_model(cfg: Mapping[str, Any]) -> str | None:
    """The kind of a configuration's model; None where fairseq knows no such model."""
    from fairseq import models

    from fairseq_poolingformer.tasks.shared.base_task import KINDS

    options = options_of(cfg.get("model"))
    registries = {**models.MODEL_REGISTRY, **models.ARCH_MODEL_REGISTRY}
    model = next((registries[name] for name in (options.get("arch"), options.get("_name")) if name in registries), None)
    return next((text for kind, text in KINDS.items() if model is not None and issubclass(model, kind)), None)


def options_of(group: Any) -> dict[str, Any]:
    """A group of a checkpoint's or a training's options as a dictionary."""
    if isinstance(group, Namespace):
        return vars(group)
    from omegaconf import DictConfig, OmegaConf

    if isinstance(group, DictConfig):
        return OmegaConf.to_container(group, resolve=True)
    return dict(group) if isinstance(group, Mapping) else {}
