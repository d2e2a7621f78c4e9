"""The metric that chooses ``checkpoint_best.pt``: it exists, and the better of two values is known to be."""

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from fairseq_poolingformer.command import UsageError, did_you_mean
from fairseq_poolingformer.patches.resuming import PACKAGE, is_ours

GROWS = re.compile(r"(\w+_)?(accuracy|f1|em|exact.match)|rouge\w*|bleu")
FALLS = re.compile(r"(\w+_)?loss|ppl|bpc|bits_per_character")


def check_metric(original: Callable, cfg: Any, trainer: Any, **named: Any) -> Any:
    """Refuse a metric that no validation will log, or that ``--maximize-…`` does not fit, before the first update."""
    # fairseq finds out after the first epoch, with nothing saved, or keeps the worst checkpoint
    task, criterion = trainer.task, trainer.get_criterion()
    if is_ours(task) and not trainer.cfg.dataset.disable_validation:
        metric, is_maximized = cfg.best_checkpoint_metric, cfg.maximize_best_checkpoint_metric
        if all(type(part).__module__.startswith(f"{PACKAGE}.") for part in (task, criterion)):
            logged = [*criterion.logged, *task.logged]
            if metric not in logged:
                raise UsageError(
                    f"--best-checkpoint-metric {metric}: with these options validation has {', '.join(logged)}"
                    f"{did_you_mean(metric, logged)}"
                )
        if GROWS.fullmatch(metric) and not is_maximized:
            raise UsageError(
                f"--best-checkpoint-metric {metric} is better the higher it is: add --maximize-best-checkpoint-metric"
            )
        if FALLS.fullmatch(metric) and is_maximized:
            raise UsageError(
                f"--best-checkpoint-metric {metric} is better the lower it is: leave out "
                "--maximize-best-checkpoint-metric"
            )
    return original(cfg, trainer, **named)


class _UnknownMetricError(UsageError):
    """A metric that a validation did not log; the arguments are the names that it did."""


class _Logged(OrderedDict):
    """The metrics of a validation, without a default for the one that chooses the best checkpoint."""

    metric = ""

    def __missing__(self, name: str) -> Any:
        raise _UnknownMetricError(*self) if name == self.metric else KeyError(name)


def name_the_metrics(original: Callable, cfg: Any, trainer: Any, stats: Any, tracking_best: bool) -> Any:
    """Have the metrics of a validation tell which there are."""
    if is_ours(trainer.task):
        stats = _Logged(stats)
        stats.metric = cfg.checkpoint.best_checkpoint_metric
    return original(cfg, trainer, stats, tracking_best)


def save_before_an_unknown_metric(
    original: Callable, cfg: Any, trainer: Any, task: Any, epoch_itr: Any, *arguments: Any
) -> Any:
    """Save a training before a metric that its first validation did not log ends it."""
    try:
        return original(cfg, trainer, task, epoch_itr, *arguments)
    except _UnknownMetricError as error:
        from fairseq import checkpoint_utils

        names = sorted(set(error.args) - {"num_updates"})
        checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
        is_saved = not (cfg.checkpoint.no_save or cfg.checkpoint.no_last_checkpoints)
        raise UsageError(
            f"--best-checkpoint-metric {cfg.checkpoint.best_checkpoint_metric}: validation has {', '.join(names)}"
            + ". checkpoint_last.pt is saved, and the same command with another metric continues" * is_saved
        ) from None
