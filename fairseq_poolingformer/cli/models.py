"""The models of checkpoints, as commands load them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from fairseq_poolingformer.cli.command import load_fairseq
from fairseq_poolingformer.cli.options import DTYPES


def load_models(
    paths: Sequence[str], device: str, precision: str, *, task: str | None = None, data: Path | None = None
) -> tuple[list[nn.Module], Any]:
    """Load checkpoints' models, in eval mode, and their task.

    Args:
        paths: the checkpoints.
        device: to compute on.
        precision: a key of :data:`DTYPES`.
        task: the ``--task`` that they must be of; None for any.
        data: the data folder; None for that of the training.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: a file is no checkpoint.
        ValueError: they are checkpoints of another task.
    """
    for path in paths:
        if not Path(path).is_file():
            raise FileNotFoundError(f"{path}: no such checkpoint")
    load_fairseq()
    from fairseq import checkpoint_utils
    from fairseq.tasks import TASK_REGISTRY

    overrides = {} if data is None else {"data": str(data.resolve())}
    models, _, loaded = checkpoint_utils.load_model_ensemble_and_task(list(paths), arg_overrides=overrides)
    if task is not None and not isinstance(loaded, TASK_REGISTRY[task]):
        raise ValueError(f"{paths[0]}: a checkpoint of {type(loaded).__name__}; give one of --task {task}")
    return [model.to(device=device, dtype=DTYPES[precision]).eval() for model in models], loaded
