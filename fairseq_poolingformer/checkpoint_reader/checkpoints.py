"""Checkpoint files: one sentence for each way in which a file cannot be read."""

import os
from typing import Any

from fairseq_poolingformer import checkpoint_reader
from fairseq_poolingformer.checkpoint_reader import Refused
from fairseq_poolingformer.checkpoint_reader import form as checkpoint_state
from fairseq_poolingformer.checkpoint_reader.damage import DAMAGE, first_line
from fairseq_poolingformer.checkpoint_reader.files import LEGACY, ZIP

ANOTHER = "Copy it again, or take another checkpoint of the same run, such as checkpoint_best.pt"


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded, with the file and the remedy in the message."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint file that is no longer what was written; the message says how."""


class MissingCheckpointError(CheckpointError, FileNotFoundError):
    """A checkpoint that is not there."""


def read(path: str | os.PathLike) -> Any:
    """Read a file of ``torch.save`` to the CPU, as data; see :mod:`fairseq_poolingformer.checkpoint_reader`.

    Args:
        path: The file.

    Returns:
        What is in the file.

    Raises:
        DamagedCheckpointError: The file is empty, cut, damaged or no file of torch.
        CheckpointError: It holds something else than data, or more than it may.
        OSError: The file is not there, is a folder, or may not be read.
    """
    path = os.fspath(path)
    with open(path, "rb") as file:
        _check_first_bytes(path, file.read(256))
        try:
            return checkpoint_reader.read(file)
        except Refused as error:
            raise CheckpointError(
                f"{path} was not loaded: {error}. Take the checkpoint from where it was made, and save it there with "
                "nothing else (the parameters are under 'model')."
            ) from None
        except DAMAGE as error:
            raise DamagedCheckpointError(f"{path} is damaged or cut short: {first_line(error)}. {ANOTHER}.") from None


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
    fault = checkpoint_state.fault(state)
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
