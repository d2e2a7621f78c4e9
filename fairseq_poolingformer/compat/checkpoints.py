"""Loading checkpoints: what may be in one, and what is said when it cannot be loaded."""

import argparse
import collections
import contextlib
import os
import pickle
import re
import typing
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fairseq_poolingformer.compat import plain_numpy
from fairseq_poolingformer.compat.patching import replace


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded, with the file and the remedy in the message."""


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
    torch.serialization.add_safe_globals(allowed_globals())
    replace(checkpoint_utils, "load_checkpoint_to_cpu", explained)
    replace(checkpoint_utils, "load_ema_from_checkpoint", explained)
    replace(checkpoint_utils, "save_checkpoint", with_state_of_all_workers)
    replace(Trainer, "load_checkpoint", no_silent_fresh_start)


def allowed_globals() -> list[Any]:
    """Return the classes and functions that fairseq's checkpoints refer to, beyond torch's own list.

    All of them hold data; building one runs no code of the checkpoint's choosing.

    Returns:
        Entries for ``torch.serialization.add_safe_globals``; a pair gives an object the name a checkpoint has for it.
    """
    from fairseq.data import Dictionary
    from fairseq.distributed import utils as distributed_utils

    options = [argparse.Namespace]  # "args", and "model" and "task" in "cfg" of models with add_args
    task_state = [Dictionary]  # tasks that put their dictionary into "task_state"
    broadcast = [distributed_utils._TensorPlaceholder]  # a tensor's place, as rank 0 sends it to the others
    return [*options, *task_state, *broadcast, *plain_numpy.allowed_globals(), *_omegaconf_globals(), *_meter_globals()]


def _omegaconf_globals() -> list[Any]:
    # Rank 0 sends the configuration to the other ranks as it is, and early hydra checkpoints hold it so. The built-in
    # types appear in its metadata, as the types of its values.
    import omegaconf
    from omegaconf import base, nodes

    containers = [omegaconf.DictConfig, omegaconf.ListConfig, base.ContainerMetadata, base.Metadata]
    names = ("AnyNode", "StringNode", "IntegerNode", "FloatNode", "BooleanNode", "EnumNode", "BytesNode", "PathNode")
    values = [getattr(nodes, name) for name in names if hasattr(nodes, name)]
    built_in = [dict, list, tuple, str, int, float, bool, bytes]
    return [*containers, *values, *built_in, collections.defaultdict, (typing.Any, "typing.Any")]


def _meter_globals() -> list[Any]:
    # Checkpoints from before 2020 pickle the meters themselves, from the module where they then were.
    from fairseq.logging import meters

    classes = [meters.AverageMeter, meters.SumMeter, meters.TimeMeter, meters.StopwatchMeter, meters.MetersDict]
    return [*classes, *((cls, f"fairseq.meters.{cls.__name__}") for cls in classes)]


def load(path: str | os.PathLike) -> dict[str, Any]:
    """Load a checkpoint to the CPU as it is in the file, through the allow-list.

    Args:
        path: The checkpoint file.

    Returns:
        What the file holds: fairseq's state, with the parameters under ``"model"``.

    Raises:
        CheckpointError: The file refers to something off the allow-list, or is no checkpoint.
        FileNotFoundError: There is no such file.
    """
    with _errors_explained(os.fspath(path)):
        return torch.load(path, map_location="cpu", weights_only=True)


def explained(original: Callable) -> Callable:
    """Say which file, which class and what to do, when a checkpoint is refused.

    Args:
        original: A function of ``fairseq.checkpoint_utils`` whose first argument is the checkpoint's path.

    Returns:
        The function to use in its place.
    """

    def load_checkpoint(path: str, *args: Any, **kwargs: Any) -> Any:
        with _errors_explained(path):
            return original(path, *args, **kwargs)

    return load_checkpoint


@contextlib.contextmanager
def _errors_explained(path: str) -> Iterator[None]:
    try:
        yield
    except pickle.UnpicklingError as error:
        # torch's own message proposes to load the file unsafely, so it is not shown as the cause
        raise CheckpointError(_explanation(path, str(error))) from None


def _explanation(path: str, message: str) -> str:
    names = _refused_globals(path, message)
    if not names:
        reason = message.strip().splitlines()[-1]
        return (
            f"{path} cannot be read as a checkpoint: it is damaged, not a torch file, or holds more than data. Copy or "
            f"convert it again. (torch says: {reason})"
        )
    return (
        f"{path} refers to {', '.join(names)}, which is not on the list of what a checkpoint may hold, so nothing of "
        "it was loaded: a class off the list could run code. Remedy: take the checkpoint from where it was made and "
        "save it without that object (the parameters are under 'model'); or, if you trust both the file and the class, "
        "call torch.serialization.add_safe_globals([...]) with it in the __init__.py of your --user-dir."
    )


def _refused_globals(path: str, message: str) -> list[str]:
    first = re.findall(r"GLOBAL (\S+) was not an allowed global", message)
    first += re.findall(r"GLOBAL (\S+) whose module \S+ is blocked", message)
    if first and zipfile.is_zipfile(path):
        # torch stops at the first one; a person would rather know them all at once
        with contextlib.suppress(pickle.UnpicklingError):
            return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    return first


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
            raise FileNotFoundError(
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
