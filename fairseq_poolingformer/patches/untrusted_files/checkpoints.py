"""Loading and saving checkpoints: one sentence for each that cannot be loaded, and no silent fresh start."""

import argparse
import contextlib
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import torch

from fairseq_poolingformer.checkpoint_reader.checkpoints import CheckpointError, MissingCheckpointError, load
from fairseq_poolingformer.checkpoint_reader.damage import DAMAGE
from fairseq_poolingformer.checkpoint_reader.option_schema import ConfigurationError
from fairseq_poolingformer.checkpoint_reader.tensor_sizes import Building
from fairseq_poolingformer.patches.long_jobs.changed_options import checked_states
from fairseq_poolingformer.patches.long_jobs.nonfinite import NonfiniteError
from fairseq_poolingformer.patches.patching import replace, set_within
from fairseq_poolingformer.patches.untrusted_files.dictionaries import DictionaryError
from fairseq_poolingformer.patches.untrusted_files.own_options import restricted

LONGEST = 1000  # characters of an error that are quoted
WRONG_PARAMETERS = "Cannot load model parameters"  # begins the error, a plain Exception, of fairseq's trainer


def apply() -> None:
    """Read checkpoints as data, explain what is refused, and stop on a checkpoint that is not there.

    Elsewhere fairseq reads files of speech by ``torch.load``, whose default has been safe since torch 2.6.

    Raises:
        ImportError: torch is older than 2.6.
    """
    from fairseq import checkpoint_utils
    from fairseq.distributed import utils as distributed_utils
    from fairseq.trainer import Trainer

    if not hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):
        raise ImportError(
            f"fairseq_poolingformer needs torch 2.6 or later, and this is torch {torch.__version__}: before 2.6, "
            "torch.load runs any code that a checkpoint holds. Install a newer torch."
        )
    if checkpoint_utils.torch is torch:
        checkpoint_utils.torch = _TorchThatExplains("torch")
    if distributed_utils.torch is torch:
        distributed_utils.torch = _TorchOfOneTraining("torch")
    replace(sys, "excepthook", one_sentence)
    replace(checkpoint_utils, "load_model_ensemble_and_task", models_explained)
    replace(checkpoint_utils, "save_checkpoint", with_state_of_all_workers)
    replace(Trainer, "load_checkpoint", checked_and_explained)


class _TorchThatExplains(types.ModuleType):
    """torch for fairseq's module of checkpoints, with :func:`~.checkpoint_files.load` in place of ``torch.load``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def load(file: IO[bytes], **unused: Any) -> dict[str, Any]:
        """Read the checkpoint that fairseq has opened, and keep of its configuration what the schema allows."""
        with explained(file.name):
            return restricted(load(file.name), Path(file.name))


class _TorchOfOneTraining(types.ModuleType):
    """torch for fairseq's module of processes, which read what others of the same training send."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def load(file: IO[bytes], **kwargs: Any) -> Any:
        """Read what another process has sent: a configuration has classes of omegaconf."""
        return torch.load(file, weights_only=False, **kwargs)


def one_sentence(original: Callable) -> Callable:
    """Print an error whose message says all that is needed as one sentence, without a traceback."""

    def excepthook(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
        if isinstance(error, CheckpointError | DictionaryError | NonfiniteError):
            print(f"error: {error}", file=sys.stderr)
        elif kind is Exception and str(error).startswith(WRONG_PARAMETERS):
            print(f"error: {error} ({_on_one_line(error.__context__)})", file=sys.stderr)
        else:
            original(kind, error, traceback)

    return excepthook


def checked_and_explained(original: Callable) -> Callable:
    """Stop when the checkpoint that was asked for is not there or does not fit the training.

    fairseq logs "No existing checkpoint found" and trains from random weights, with exit status 0, whatever was given
    as ``--restore-file``, ``--continue-once`` or (a folder, say) ``--finetune-from-model``. Only fairseq's default, the
    ``checkpoint_last.pt`` of the save directory, may be missing: that is the first launch.
    """

    def load_checkpoint(self: Any, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any) -> Any:
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
        with explained(filename), checked_states(self, anew=reset_optimizer):
            return original(self, filename, reset_optimizer, *args, **kwargs)

    return load_checkpoint


def models_explained(original: Callable) -> Callable:
    """Name the checkpoint from which no model can be built, and build none that is much larger than its file."""

    def load_model_ensemble_and_task(filenames: list[str], *args: Any, **kwargs: Any) -> Any:
        from fairseq import checkpoint_utils

        read, state = checkpoint_utils.load_checkpoint_to_cpu, kwargs.get("state")
        with explained(os.pathsep.join(map(str, filenames))), contextlib.ExitStack() as building:
            if state is not None:
                building.enter_context(Building(state["model"]))

            def load_checkpoint_to_cpu(*args: Any, **kwargs: Any) -> dict[str, Any]:
                building.close()  # of the model before
                state = read(*args, **kwargs)
                building.enter_context(Building(state["model"]))
                return state

            with set_within(checkpoint_utils, "load_checkpoint_to_cpu", load_checkpoint_to_cpu):
                return original(filenames, *args, **kwargs)

    return load_model_ensemble_and_task


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn the errors of building something from a checkpoint into one sentence with its file.

    The error itself is the cause of the new one.

    Args:
        path: the checkpoint's file.

    Raises:
        CheckpointError: the block raises one, or an error of an unusable configuration or state.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (CheckpointError, OSError):  # these name a file
        raise
    except (*DAMAGE, HydraException, OmegaConfBaseException, argparse.ArgumentError) as error:
        raise CheckpointError(f"{path} cannot be used: {_on_one_line(error)}") from error


def _on_one_line(error: BaseException) -> str:
    text = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    return ("" if type(error) in (ValueError, ConfigurationError) else f"{type(error).__name__}: ") + text[:LONGEST]


def with_state_of_all_workers(original: Callable) -> Callable:
    """Let a task gather what each worker has to save.

    fairseq asks the task for its state (``get_checkpoint_dict``) on the first worker only, where no other one can send
    its own. A task with a ``gather_checkpoint_state`` is asked before that, on all of them.
    """

    def save_checkpoint(cfg: Any, trainer: Any, epoch_itr: Any, val_loss: Any) -> Any:
        if not cfg.no_save and hasattr(trainer.task, "gather_checkpoint_state"):
            trainer.task.gather_checkpoint_state()
        return original(cfg, trainer, epoch_itr, val_loss)

    return save_checkpoint
