"""Trainings that are asked to stop, that have finished, and that share a folder by mistake."""

import contextlib
import functools
import logging
import math
import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.patches import resuming
from fairseq_poolingformer.patches.saving import TRAINING_NAMES
from fairseq_poolingformer.text.atomic_write import SUFFIX, lock_folder

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)  # SLURM sends the second before the time limit, with --signal=USR1@120
STOPPED = 75  # exit status of a training that was asked to stop: start it again to continue (EX_TEMPFAIL)

# a checkpoint that a training was writing under this name, see saving.py
UNFINISHED = re.compile(rf"(?:{TRAINING_NAMES}|checkpoint_last).*\.pt\.[\w-]+{re.escape(SUFFIX)}")

_asked: list[int] = []  # the signals that have come
_handlers: dict[int, Any] = {}  # of a training's signals, before it began
_locks: dict[Path, int | None] = {}  # save directories of this process, and the open files that lock them


def lock_save_directory(original: Callable, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
    """Refuse a second training that saves in one directory, where each would overwrite the other's checkpoints."""
    if trainer.data_parallel_rank == 0 and not cfg.no_save and cfg.save_dir is not None:
        lock(cfg.save_dir)
    return original(cfg, trainer, **kwargs)


def lock(save_dir: str) -> None:
    """Keep other trainings out of a folder until this process ends; remove what a killed one left of a file."""
    folder = Path(save_dir).resolve()
    if folder in _locks:
        return
    try:
        _locks[folder] = lock_folder(folder)
    except BlockingIOError:
        raise UsageError(
            f"--save-dir {save_dir}: another training is running in this folder. Wait for it or stop it, or give "
            "another --save-dir"
        ) from None
    if _locks[folder] is None:
        return
    for path in folder.iterdir():
        if UNFINISHED.fullmatch(path.name):
            path.unlink()


def leave_finished_training(original: Callable, cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> tuple[list, bool]:
    """Leave a finished training as it is (fairseq trains one more update), and watch for signals from here on."""
    updates, most = trainer.get_num_updates(), cfg.optimization.max_update
    if most and updates >= most:
        logger.info(f"the training is finished: it has {updates} of --max-update {most} updates")
        return [None], True
    if resuming.is_out_of_patience(cfg):
        return [None], True
    if not _handlers:
        with contextlib.suppress(ValueError):  # only the main thread may watch for signals
            for number in SIGNALS:
                former = signal.signal(number, functools.partial(_ask, os.getpid()))
                _handlers[number] = former or signal.SIG_DFL  # None: it is none of Python's
    is_over = True
    try:
        losses, should_stop = original(cfg, trainer, task, epoch_itr)
        is_over = should_stop or epoch_itr.next_epoch_idx > (cfg.optimization.max_epoch or math.inf)
        return losses, should_stop
    except RuntimeError as error:
        if not _asked or "DataLoader worker" not in str(error):
            raise
        logger.warning(
            "the signal ended the processes that read the data, too, so nothing was saved after it; the same "
            "command continues from the last checkpoint. Send SIGUSR1, or SIGTERM to the training process alone"
        )
        sys.exit(STOPPED)
    finally:
        if is_over:
            restore_handlers()


def end_with_former_handlers(original: Callable, *args: Any, **kwargs: Any) -> Any:
    """Give signals back to whoever had them, however a training ends, also between two epochs."""
    try:
        return original(*args, **kwargs)
    finally:
        restore_handlers()


def end_below_least_rate(original: Callable, trainer: Any, *args: Any) -> float:
    """Give signals back where ``--stop-min-lr`` ends a training that began before the plugin was imported.

    A first job of ``fairseq-hydra-train`` imports it within fairseq's ``main``, which :func:`end_with_former_handlers`
    is therefore not around.
    """
    rate = original(trainer, *args)
    if rate <= trainer.cfg.optimization.stop_min_lr:
        restore_handlers()
    return rate


def restore_handlers() -> None:
    """Handle signals as before the training, and forget those that came."""
    while _handlers:
        signal.signal(*_handlers.popitem())
    _asked.clear()


def _ask(process: int, number: int, frame: FrameType | None) -> None:
    if os.getpid() != process:
        return  # a process that reads data
    _asked.append(number)
    if len(_asked) == 1:
        logger.warning(f"{signal.Signals(number).name}: saving a checkpoint after this update, then stopping")


@contextlib.contextmanager
def pass_signals_on() -> Iterator[None]:
    """Pass signals on to the processes that fairseq-train starts, one a GPU, and end as they do, within the block."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        processes = multiprocessing.active_children()
        for process in processes:
            os.kill(process.pid, number)
        if not processes:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    before = {number: signal.signal(number, pass_on) for number in SIGNALS}
    try:
        yield
    except torch.multiprocessing.ProcessExitedException as error:
        if error.exit_code != STOPPED:
            raise
        sys.exit(STOPPED)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def save_and_stop_when_asked(
    original: Callable, cfg: Any, trainer: Any, task: Any, epoch_itr: Any, *arguments: Any
) -> Any:
    """Save ``checkpoint_last.pt`` and end the process when a signal has come."""
    # All processes decide and end together: torchrun kills the others after the first failure. A training whose last
    # update is done is validated as ever; one that is due now comes after the save, and the next start says if it lacks
    most = cfg.optimization.max_update
    if not _any_process_asked(trainer) or (most and trainer.get_num_updates() >= most):
        return original(cfg, trainer, task, epoch_itr, *arguments)
    from fairseq import checkpoint_utils

    checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
    losses, is_over = original(cfg, trainer, task, epoch_itr, *arguments)
    if is_over:
        return losses, is_over
    if losses[0] is not None and resuming.decides(cfg):
        checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, losses[0])
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    logger.warning(
        f"stopped after {trainer.get_num_updates()} updates, checkpoint saved; the same command continues from here"
    )
    sys.exit(STOPPED)


def _any_process_asked(trainer: Any) -> bool:
    asked = torch.tensor(float(bool(_asked)), device=trainer.device)
    if trainer.data_parallel_world_size > 1:
        torch.distributed.all_reduce(asked, torch.distributed.ReduceOp.MAX, group=trainer.data_parallel_process_group)
    return bool(asked)
