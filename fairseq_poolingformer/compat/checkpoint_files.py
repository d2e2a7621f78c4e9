"""Checkpoint files: the classes that one may hold, and one sentence for each way in which a file cannot be read."""

import argparse
import collections
import contextlib
import os
import re
import typing
import zipfile
from importlib.util import find_spec
from typing import Any

import torch

from fairseq_poolingformer.compat import checkpoint_state, plain_numpy
from fairseq_poolingformer.compat.archive import DAMAGE, LEGACY, ZIP, damage, first_line

ANOTHER = "Copy it again, or take another checkpoint of the same run, such as checkpoint_best.pt"


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded, with the file and the remedy in the message."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint file that is no longer what was written; the message says how."""


class MissingCheckpointError(CheckpointError, FileNotFoundError):
    """A checkpoint that is not there."""


def read(path: str | os.PathLike) -> Any:
    """Read a file of ``torch.save`` to the CPU, through the allow-list.

    Args:
        path: The file.

    Returns:
        The object in the file.

    Raises:
        DamagedCheckpointError: The file is empty, cut, damaged or no file of torch.
        CheckpointError: It refers to something off the list.
        OSError: The file is not there, is a folder, or may not be read.
    """
    path = os.fspath(path)
    with open(path, "rb") as file:
        _check_first_bytes(path, file.read(256))
        if (fault := damage(path)) is not None:
            raise DamagedCheckpointError(f"{path} is damaged or cut short: {fault}. {ANOTHER}.")
        file.seek(0)
        allow(data_globals())
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except DAMAGE as error:
            # torch's own message proposes to load the file unsafely, so it is not shown as the cause
            raise _explained(path, error) from None


def load(path: str | os.PathLike) -> dict[str, Any]:
    """Read a checkpoint of fairseq, as :func:`read` does.

    Args:
        path: The file.

    Returns:
        fairseq's state, with the parameters under ``"model"``.

    Raises:
        CheckpointError: :func:`read` refuses the file, it is another kind of file, or its entries are malformed.
        OSError: The file is not there, is a folder, or may not be read.
    """
    state = read(path)
    if not isinstance(state, dict) or "model" not in state:
        raise CheckpointError(
            f"{path} is not a checkpoint of fairseq: it has no entry 'model'. If it holds Hugging Face weights, "
            "convert their folder with poolingformer-convert to-fairseq."
        )
    try:
        fault = checkpoint_state.fault(state)
    except DAMAGE as error:  # objects of omegaconf that lack parts of themselves
        fault = f"it cannot be looked at ({first_line(error)})"
    if fault is not None:
        raise CheckpointError(f"{path} is not a checkpoint of fairseq: {fault}. Take it from where it was made again.")
    return state


def allow(entries: list[Any]) -> None:
    """Add to the allow-list of ``torch.load``, and let no other entry have one of these names.

    Programs allow numpy's own classes in the same process. Which of two entries of one name torch takes is left to
    chance, and numpy's do not fit together with :mod:`.plain_numpy`'s.

    Args:
        entries: as :func:`data_globals` returns them.
    """
    names = {entry[1] for entry in entries if isinstance(entry, tuple)}
    others = [entry for entry in torch.serialization.get_safe_globals() if _name(entry) not in names]
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals([*others, *entries])


def _name(entry: Any) -> str:
    return entry[1] if isinstance(entry, tuple) else f"{entry.__module__}.{entry.__qualname__}"


def data_globals() -> list[Any]:
    """Return the classes and functions outside fairseq that checkpoints refer to, beyond torch's own list.

    All of them hold data; building one runs no code of the checkpoint's choosing.
    :func:`fairseq_poolingformer.compat.checkpoints.apply` adds fairseq's own.

    Returns:
        Entries for ``torch.serialization.add_safe_globals``; a pair gives an object the name a checkpoint has for it.
    """
    options = [argparse.Namespace]  # "args", and "model" and "task" in "cfg" of models with add_args
    return [*options, *plain_numpy.allowed_globals(), *(_omegaconf_globals() if find_spec("omegaconf") else [])]


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


def _explained(path: str, error: Exception) -> CheckpointError:
    names = _refused_globals(path, str(error))
    if not names:
        return DamagedCheckpointError(f"{path} is damaged or cut short (torch says: {_reason(error)}). {ANOTHER}.")
    return CheckpointError(
        f"{path} refers to {', '.join(names)}, which is not on the list of what a checkpoint may hold, so nothing of "
        "it was loaded: a class off the list could run code. Remedy: take the checkpoint from where it was made and "
        "save it without that object (the parameters are under 'model'); or, if you trust both the file and the class, "
        "call torch.serialization.add_safe_globals([...]) with it in the __init__.py of your --user-dir."
    )


def _reason(error: Exception) -> str:
    """Return the sentence of torch's message that says what is wrong, without its advice to load unsafely."""
    _, found, detail = str(error).partition("WeightsUnpickler error:")
    lines = (detail if found else str(error)).strip().splitlines()
    if not lines or "weights_only" in lines[0]:
        return type(error).__name__
    return lines[0].strip() if found else f"{type(error).__name__}: {lines[0].strip()}"


def _refused_globals(path: str, message: str) -> list[str]:
    first = re.findall(r"GLOBAL (\S+) was not an allowed global", message)
    first += re.findall(r"GLOBAL (\S+) whose module \S+ is blocked", message)
    if first and zipfile.is_zipfile(path):
        # torch stops at the first one; a person would rather know them all at once
        with contextlib.suppress(*DAMAGE):
            return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    return first
