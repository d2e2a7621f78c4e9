"""Loading and saving checkpoints: one sentence for each that cannot be loaded, and no silent fresh start."""

import argparse
import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from fairseq_poolingformer.checkpoint_reader.checkpoints import OPTIMIZER, CheckpointError, load
from fairseq_poolingformer.checkpoint_reader.errors import DAMAGE, ConfigurationError
from fairseq_poolingformer.checkpoint_reader.tensor_sizes import Building
from fairseq_poolingformer.patches.untrusted_files.own_options import restricted
from fairseq_poolingformer.patching import set_within

LONGEST = 1000  # characters of an error that are quoted
WRONG_PARAMETERS = "Cannot load model parameters"  # begins the error, a plain Exception, of fairseq's trainer


def read_as_data(
    original: Callable | None, file: IO[bytes], unread: Collection[str] = (), **unused: Any
) -> dict[str, Any]:
    """Read the checkpoint that fairseq has opened as data, and keep of its configuration what the schema allows."""
    with explained(file.name):
        return restricted(load(file.name, unread), Path(file.name))


@contextlib.contextmanager
def without_optimizer() -> Iterator[None]:
    """Within the block, fairseq reads checkpoints for use: the state of their optimizers stays on the disk."""
    from fairseq import checkpoint_utils

    with set_within(checkpoint_utils.torch, "load", partial(read_as_data, None, unread=(OPTIMIZER,))):
        yield


def read_what_processes_sent(original: Callable, file: IO[bytes], **kwargs: Any) -> Any:
    """Read what another process of the same training has sent: a configuration has classes of omegaconf."""
    return original(file, weights_only=False, **kwargs)


def explain_unusable_model(original: Callable, filenames: list[str], *args: Any, **kwargs: Any) -> Any:
    """Name the checkpoint from which no model can be built, and build none that is much larger than its file."""
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

        with without_optimizer(), set_within(checkpoint_utils, "load_checkpoint_to_cpu", load_checkpoint_to_cpu):
            return original(filenames, *args, **kwargs)


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn the errors of building something from a checkpoint into one sentence with its file.

    The error itself is the cause of the new one.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (CheckpointError, OSError):  # these name a file
        raise
    except (*DAMAGE, HydraException, OmegaConfBaseException, argparse.ArgumentError) as error:
        raise CheckpointError(f"{path} cannot be used: {one_line_with_kind(error)}") from error


def one_line_with_kind(error: BaseException) -> str:
    """The message of an error, after its type where that is not one of people's."""
    text = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    return ("" if type(error) in (ValueError, ConfigurationError) else f"{type(error).__name__}: ") + text[:LONGEST]
