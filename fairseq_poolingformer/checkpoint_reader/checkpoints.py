"""Checkpoint files: one sentence for each way in which a file cannot be read."""

import argparse
import os
from collections.abc import Collection, Mapping
from typing import Any

import torch

from fairseq_poolingformer.checkpoint_reader import files
from fairseq_poolingformer.checkpoint_reader.errors import (
    DAMAGE,
    CheckpointError,
    DamagedCheckpointError,
    MissingCheckpointError,
    Refused,
    first_line,
)
from fairseq_poolingformer.checkpoint_reader.files import LEGACY, ZIP

__all__ = ["CheckpointError", "DamagedCheckpointError", "MissingCheckpointError", "load", "read"]

ANOTHER = "Copy it again, or take another checkpoint of the same run, such as checkpoint_best.pt"


OPTIMIZER = "last_optimizer_state"  # the entry that training alone needs: twice the bytes of the parameters
BEYOND_SETTINGS = ("model", OPTIMIZER)
LARGEST_CONFIGURATION = 100_000  # values; fairseq's own have about 500
# entries of a checkpoint of fairseq that it reads; each may be missing or None
FORMS = {
    "args": argparse.Namespace,
    "cfg": Mapping,
    "optimizer_history": list,
    "extra_state": Mapping,
    "task_state": Mapping,
    OPTIMIZER: Mapping,
}


def read(path: str | os.PathLike, unread: Collection[str] = ()) -> Any:
    """Read a file of ``torch.save`` to the CPU, as data; see :mod:`fairseq_poolingformer.checkpoint_reader`."""
    path = os.fspath(path)
    with open(path, "rb") as file:
        _check_first_bytes(path, file.read(256))
        try:
            return files.read(file, unread)
        except Refused as error:
            raise CheckpointError(
                f"{path} was not loaded: {error}. Take the checkpoint from where it was made, and save it there with "
                "nothing else (the parameters are under 'model')."
            ) from None
        except DAMAGE as error:
            raise DamagedCheckpointError(f"{path} is damaged or cut short: {first_line(error)}. {ANOTHER}.") from None


def load(path: str | os.PathLike, unread: Collection[str] = ()) -> dict[str, Any]:
    """Read a checkpoint of fairseq, as :func:`read` does."""
    state = read(path, unread)
    if not isinstance(state, dict) or "model" not in state:
        raise CheckpointError(
            f"{path} is not a checkpoint of fairseq: it has no entry 'model'. If it holds Hugging Face weights, "
            "convert their folder with poolingformer-convert to-fairseq."
        )
    fault = _fault(state)
    if fault is not None:
        raise CheckpointError(f"{path} is not a checkpoint of fairseq: {fault}. Take it from where it was made again.")
    return state


def _check_first_bytes(path: str, head: bytes) -> None:
    """Refuse a file that is no file of torch at all."""
    if not head:
        raise DamagedCheckpointError(f"{path} is empty: writing or copying it was broken off. {ANOTHER}.")
    if head.startswith((ZIP, LEGACY)):
        return
    if head.startswith(b"version https://git-lfs"):
        remedy = "It is a Git LFS pointer: git lfs pull fetches the file itself."
    elif path.endswith(".safetensors"):
        remedy = "Convert the Hugging Face folder that it lies in with poolingformer-convert to-fairseq."
    elif head.lstrip()[:1] == b"<":
        remedy = "A web page was saved in its place: download it again."
    else:
        remedy = f"It begins with {head[:16]!r}. Give a .pt file that fairseq-train or poolingformer-convert wrote."
    raise DamagedCheckpointError(f"{path} is not a checkpoint. {remedy}")


def _fault(state: Mapping[str, Any]) -> str | None:
    """Say what is wrong with the entries of a checkpoint, before anything is built from them; None where nothing is."""
    parameters = state["model"]
    if not isinstance(parameters, Mapping):
        return f"its entry 'model' is a {type(parameters).__name__} in place of parameters by name"
    for name, value in parameters.items():
        if not isinstance(name, str):
            return f"the name of a parameter is {str(name)[:50]!r}, which is no text"
        if not isinstance(value, torch.Tensor):
            return f"its parameter {name[:100]!r} is a {type(value).__name__} in place of a tensor"
    for name, form in FORMS.items():
        value = state.get(name)
        if value is not None and not isinstance(value, form):
            return f"its entry {name!r} is a {type(value).__name__} in place of a {form.__name__}"
    history = state.get("optimizer_history") or []
    if not all(isinstance(entry, Mapping) for entry in history):
        return "its entry 'optimizer_history' holds something else than dictionaries"
    if any(not isinstance(entry.get("num_updates", 0), int) for entry in history):
        return "its number of updates is no integer"
    configuration = state.get("cfg") or {}
    if _is_endless([state.get("args"), configuration]):
        return f"its configuration has more than {LARGEST_CONFIGURATION:,} values"
    for name in ("model", "task"):
        group = configuration.get(name)
        if group is not None and not isinstance(group, Mapping | argparse.Namespace):
            return f"the options of its {name} are a {type(group).__name__} in place of options by name"
    return None


def _is_endless(values: list[Any]) -> bool:
    """Whether nested lists and dictionaries hold too many values."""
    count = 0
    while values:
        value = values.pop()
        count += 1
        if count > LARGEST_CONFIGURATION:
            return True
        if isinstance(value, argparse.Namespace):
            value = vars(value)
        if isinstance(value, Mapping):
            values.extend(value.values())
        elif isinstance(value, list | tuple | set):
            values.extend(value)
    return False
