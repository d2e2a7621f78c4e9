"""Loading and saving checkpoints: one sentence for each that cannot be loaded, and no silent fresh start."""

import os
import sys
import types
from collections.abc import Callable
from typing import IO, Any

import torch

from fairseq_poolingformer.compat.checkpoint_files import (
    CheckpointError,
    MissingCheckpointError,
    allow,
    data_globals,
    load,
)
from fairseq_poolingformer.compat.patching import replace


def apply() -> None:
    """Allow what fairseq's checkpoints hold, explain what is refused, and stop on a checkpoint that is not there.

    ``torch.load`` reads with ``weights_only=True`` and so builds only classes on an allow-list; a pickle could
    otherwise run any code. The default is what keeps fairseq's own calls safe, so a torch from before it is refused.

    Raises:
        ImportError: torch is older than 2.6.
    """
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer

    if not hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):
        raise ImportError(
            f"fairseq_poolingformer needs torch 2.6 or later, and this is torch {torch.__version__}: before 2.6, "
            "torch.load runs any code that a checkpoint holds. Install a newer torch."
        )
    allow([*data_globals(), *fairseq_globals()])
    if checkpoint_utils.torch is torch:
        checkpoint_utils.torch = _TorchThatExplains("torch")
    replace(sys, "excepthook", one_sentence)
    replace(checkpoint_utils, "save_checkpoint", with_state_of_all_workers)
    replace(Trainer, "load_checkpoint", no_silent_fresh_start)


def fairseq_globals() -> list[Any]:
    """Return fairseq's own classes that checkpoints refer to, as :func:`~.checkpoint_files.data_globals` does."""
    from fairseq.data import Dictionary
    from fairseq.distributed import utils as distributed_utils
    from fairseq.logging import meters

    task_state = [Dictionary]  # tasks that put their dictionary into "task_state"
    broadcast = [distributed_utils._TensorPlaceholder]  # a tensor's place, as rank 0 sends it to the others
    # Checkpoints from before 2020 pickle the meters themselves, from the module where they then were.
    classes = [meters.AverageMeter, meters.SumMeter, meters.TimeMeter, meters.StopwatchMeter, meters.MetersDict]
    return [*task_state, *broadcast, *classes, *((cls, f"fairseq.meters.{cls.__name__}") for cls in classes)]


class _TorchThatExplains(types.ModuleType):
    """torch for fairseq's module of checkpoints, with :func:`~.checkpoint_files.load` in place of ``torch.load``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def load(file: IO[bytes], **unused: Any) -> dict[str, Any]:
        """Read the checkpoint that fairseq has opened."""
        return load(file.name)


def one_sentence(original: Callable) -> Callable:
    """Print a :class:`~.checkpoint_files.CheckpointError` that ends a command as one sentence, without a traceback.

    Args:
        original: ``sys.excepthook``.

    Returns:
        The function to use in its place.
    """

    def excepthook(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
        if isinstance(error, CheckpointError):
            print(f"error: {error}", file=sys.stderr)
        else:
            original(kind, error, traceback)

    return excepthook


def no_silent_fresh_start(original: Callable) -> Callable:
    """Stop when the checkpoint that was asked for is not there.

    fairseq logs "No existing checkpoint found" and trains from random weights, with exit status 0, whatever was given
    as ``--restore-file``, ``--continue-once`` or (a folder, say) ``--finetune-from-model``. Only fairseq's default, the
    ``checkpoint_last.pt`` of the save directory, may be missing: that is the first launch.

    Args:
        original: ``fairseq.trainer.Trainer.load_checkpoint``.

    Returns:
        The function to use in its place.
    """

    def load_checkpoint(self: Any, filename: str, *args: Any, **kwargs: Any) -> Any:
        from fairseq.file_io import PathManager

        cfg = self.cfg.checkpoint
        default = os.path.join(cfg.save_dir, f"checkpoint_last{self.checkpoint_suffix}.pt")
        asked_for = cfg.restore_file != "checkpoint_last.pt" or filename != default
        if asked_for and not PathManager.isfile(filename):
            raise MissingCheckpointError(
                f"the checkpoint to start from, {filename}, is not there or not a file. Correct --restore-file (or "
                "--finetune-from-model); leave it out to resume from the save directory, or to start afresh when that "
                "has no checkpoint_last.pt."
            )
        return original(self, filename, *args, **kwargs)

    return load_checkpoint


def with_state_of_all_workers(original: Callable) -> Callable:
    """Let a task gather what each worker has to save.

    fairseq asks the task for its state (``get_checkpoint_dict``) on the first worker only, where no other one can send
    its own. A task with a ``gather_checkpoint_state`` is asked before that, on all of them.

    Args:
        original: ``fairseq.checkpoint_utils.save_checkpoint``.

    Returns:
        The function to use in its place.
    """

    def save_checkpoint(cfg: Any, trainer: Any, epoch_itr: Any, val_loss: Any) -> Any:
        if not cfg.no_save and hasattr(trainer.task, "gather_checkpoint_state"):
            trainer.task.gather_checkpoint_state()
        return original(cfg, trainer, epoch_itr, val_loss)

    return save_checkpoint
