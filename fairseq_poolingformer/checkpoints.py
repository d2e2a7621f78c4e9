"""Checkpoints: files of ``torch.save``, read as data. Nothing of a file is executed, and damage ends in a sentence.

torch's ``weights_only`` makes tensors, Python's plain types and what :data:`SAFE` says. It reads flipped bits without a
word, so ``zipfile`` compares the checksums first.
"""

import argparse
import collections
import contextlib
import io
import logging
import os
import pickle
import pickletools
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy
import torch
from torch.serialization import safe_globals

from fairseq_poolingformer.patching import set_within

ZIP, LEGACY = b"PK\x03\x04", b"\x80\x02"  # first bytes of a zip archive, and of the pickles before torch 1.6
OPTIMIZER = "last_optimizer_state"  # the entry that training alone needs: twice the bytes of the parameters
BEYOND_SETTINGS = ("model", OPTIMIZER)
# what Python, torch and fairseq raise for a file that they cannot make sense of
DAMAGE = (
    *(pickle.UnpicklingError, EOFError, RuntimeError, LookupError, TypeError, ValueError, AttributeError, MemoryError),
    *(AssertionError, ArithmeticError, OSError, struct.error, zipfile.BadZipFile, zlib.error),
)
ANOTHER = "Copy it again, or take another checkpoint of the same run, such as checkpoint_best.pt"
LONGEST = 1000  # characters of an error that are quoted
MOST_NESTED, MOST_STEPS = 16, 5_000_000  # of a pickle: tuples in one another; operations, and values in their tuples

logger = logging.getLogger(__name__)


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded, with the file and the remedy in the message."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint file that is no longer what was written; the message says how."""


class MissingCheckpointError(CheckpointError, FileNotFoundError):
    """A checkpoint that is not there."""


class ConfigurationError(ValueError):
    """A checkpoint's configuration that asks for more than a model; the message says which part."""


class _Saved:
    """A placeholder for an object of a file: its arguments and its state, until all is read."""

    def __new__(cls, *arguments: Any) -> "_Saved":
        self = super().__new__(cls)
        self.arguments, self.state = arguments, None
        return self

    def __init__(self, *arguments: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def value(self, plain: "_Plain") -> Any:
        """The state, as plain data: a former meter of fairseq is a dictionary."""
        return plain(self.state)


class _Described(_Saved):
    """A type, or what omegaconf knows of one: no data."""

    def value(self, plain: "_Plain") -> None:
        return None


class _Config(_Saved):
    """A dictionary or list of omegaconf."""

    def value(self, plain: "_Plain") -> Any:
        return plain(self.state["_content"])


class _Node(_Saved):
    """A value of omegaconf."""

    def value(self, plain: "_Plain") -> Any:
        return self.state["_val"]


class _Type(_Saved):
    """A type of numpy: its name, and its byte order. numpy's own would take more from a file than it can check."""

    def value(self, plain: "_Plain") -> numpy.dtype:
        if not re.fullmatch(r"[?bBhHiIlLqQefdgFD]|[biufcSU]\d{1,5}", str(self.arguments[0])):
            raise ValueError("it has a type of numpy that holds more than numbers and text")
        return numpy.dtype(self.arguments[0]).newbyteorder(self.state[1] if self.state else "=")


class _Number(_Saved):
    """A number of numpy: its type and its bytes."""

    def value(self, plain: "_Plain") -> numpy.generic:
        dtype, content = self.arguments
        return numpy.frombuffer(content, plain(dtype))[0]


class _Array(_Saved):
    """An array of numpy, such as the counts of ``--eval-bleu``: its state is version, shape, type, order and bytes."""

    def value(self, plain: "_Plain") -> numpy.ndarray:
        _, shape, dtype, is_fortran, content = self.state
        return numpy.ndarray(shape, plain(dtype), content, order="F" if is_fortran else "C").copy("K")


# what checkpoints of fairseq hold beside what torch itself allows
SAFE: tuple[tuple[Any, str], ...] = (
    (argparse.Namespace, "argparse.Namespace"),
    (bytes, "builtins.bytes"),
    (lambda *factory: {}, "collections.defaultdict"),
    *((_Described, f"builtins.{name}") for name in ("dict", "list", "tuple", "str", "int", "float", "bool")),
    *((_Described, name) for name in ("typing.Any", "omegaconf.base.Metadata", "omegaconf.base.ContainerMetadata")),
    *((_Config, f"omegaconf.{name}") for name in ("dictconfig.DictConfig", "listconfig.ListConfig")),
    *((_Node, f"omegaconf.nodes.{kind}Node") for kind in ("Any", "String", "Integer", "Float", "Boolean", "Enum")),
    (_Type, "numpy.dtype"),
    (_Described, "numpy.ndarray"),
    *(
        (kind, f"{module}.multiarray.{name}")
        for module in ("numpy.core", "numpy._core")  # of numpy 1, of numpy 2
        for kind, name in ((_Number, "scalar"), (_Array, "_reconstruct"))
    ),
    *((collections.OrderedDict, f"fairseq.{module}meters.MetersDict") for module in ("", "logging.")),
    *(
        (_Saved, f"{module}.{name}Meter")
        for module in ("fairseq.meters", "fairseq.logging.meters")  # before 2020, and since
        for name in ("Average", "Sum", "Time", "Stopwatch")
    ),
)


class _Plain:
    """Converts placeholders to plain data, keeping shared objects shared."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[Any, Any]] = {}  # id -> a value, kept so that no other gets its id, and its data

    def __call__(self, value: Any) -> Any:
        if id(value) not in self._done:
            self._done[id(value)] = value, self._of(value)
        return self._done[id(value)][1]

    def _of(self, value: Any) -> Any:
        if isinstance(value, _Saved):
            return value.value(self)
        if isinstance(value, argparse.Namespace):
            self(vars(value))
        elif isinstance(value, dict):
            for key in value:
                value[key] = self(value[key])
        elif type(value) in (list, tuple, set):
            return type(value)(map(self, value))
        return value


def read(path: str | os.PathLike, unread: Collection[str] = (), has_tensors: bool = True) -> Any:
    """Read a file of ``torch.save`` to the CPU, as data; the entries ``unread`` are empty, and stay on the disk.

    Without ``has_tensors`` the numbers of all tensors stay there, too, and their checksums are not compared.
    """
    path = os.fspath(path)
    check_is_file(path)
    _check_first_bytes(path)
    fault = damage(path) if has_tensors else None
    if fault is not None:
        raise DamagedCheckpointError(f"{path} is damaged or cut short: {fault}. {ANOTHER}.")
    try:
        _check_pickles(path)
        with safe_globals(list(SAFE)):
            device, is_mapped = "cpu" if has_tensors else "meta", bool(unread) and _is_stored(path)
            value = torch.load(path, map_location=device, weights_only=True, mmap=is_mapped)
        if isinstance(value, dict):
            value.update({name: {} for name in unread if isinstance(value.get(name), dict)})
        return _Plain()(value)
    except CheckpointError:
        raise
    except DAMAGE as error:
        names = re.findall(r"GLOBAL `?([\w.]+)", str(error))
        if names or zipfile.is_zipfile(path):  # whose checksums are right
            reason = f"it refers to {names[0]}" if names else first_line(error)
            raise CheckpointError(
                f"{path} was not loaded: {reason}, and a checkpoint may hold nothing but data. Take the checkpoint "
                "from where it was made, and save it there with nothing else (the parameters are under 'model')."
            ) from None
        raise DamagedCheckpointError(f"{path} is damaged or cut short: {first_line(error)}. {ANOTHER}.") from None


def load(path: str | os.PathLike, unread: Collection[str] = ()) -> dict[str, Any]:
    """Read a checkpoint of fairseq, as :func:`read` does."""
    state = read(path, unread)
    if not isinstance(state, dict) or "model" not in state:
        raise CheckpointError(
            f"{path} is not a checkpoint of fairseq: it has no entry 'model'. If it holds Hugging Face weights, "
            "convert their folder with poolingformer convert to-fairseq."
        )
    parameters = state["model"]
    if not isinstance(parameters, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in parameters.items()
    ):
        raise CheckpointError(f"{path} is not a checkpoint of fairseq: its entry 'model' is not tensors by name.")
    for name in ("args", "cfg"):
        if not isinstance(state.get(name), dict | argparse.Namespace | None):
            raise CheckpointError(f"{path} is not a checkpoint of fairseq: its entry {name!r} is not options by name.")
    return state


def damage(path: str | os.PathLike) -> str | None:
    """Describe how a checkpoint file is damaged; None when every byte is what was written, or has no checksum."""
    with open(path, "rb") as file:
        head = file.read(4)
    if head.startswith(LEGACY):
        return None
    if head != ZIP:
        return "it is not a file of torch" if head else "it is empty"
    try:
        with zipfile.ZipFile(path) as archive:
            if not any(record.CRC for record in archive.infolist()):
                logger.warning(f"{path} was saved without checksums, so damage cannot be seen")
                return None
            record = archive.testzip()
    except DAMAGE as error:
        return first_line(error)
    return None if record is None else f"the checksum of {record} in it is wrong"


def _check_pickles(path: str) -> None:
    """Refuse a file whose pickles would be read without end; storages stay unread."""
    with open(path, "rb") as file:
        if not zipfile.is_zipfile(file):
            file.seek(0)
            pickles = [file] * 5  # magic number, version, machine, content, names of the storages, which follow
        else:
            pickles = []
            with zipfile.ZipFile(file) as archive:
                for record in archive.infolist():
                    if record.filename.lower().endswith("data.pkl"):  # torch takes either case
                        del record.CRC  # compared by damage(), and 0 where a file has no checksums
                        pickles.append(io.BytesIO(archive.read(record)))
        if not all(map(_is_bounded, pickles)):
            raise CheckpointError(
                f"{path} was not loaded: it has tuples in tuples more than {MOST_NESTED} deep, or takes more than "
                f"{MOST_STEPS:,} steps to read, as no checkpoint does. Take the checkpoint from where it was made."
            )


def _is_bounded(file: IO[bytes]) -> bool:
    """Follow a pickle's stack: a tuple that holds another one twice is hashed twice as long where it is a key."""
    stack: list[tuple[int, int] | None] = []  # of each tuple its depth and its values, however often held; None: a mark
    memo: dict[int, tuple[int, int] | None] = {}
    steps = 0
    for operation, argument, _ in pickletools.genops(file):
        before, name = operation.stack_before, operation.name
        if name.endswith("PUT") or name == "MEMOIZE":
            memo[len(memo) if argument is None else int(argument)] = stack[-1]
            continue
        values: list[tuple[int, int] | None] = []
        if pickletools.markobject in before:
            while (value := stack.pop()) is not None:
                values.append(value)
            before = before[: before.index(pickletools.markobject)]
        values += [stack.pop() for _ in before]
        depths, sizes = zip((0, 0), *filter(None, values), strict=True)
        steps += 1 + sum(sizes)
        if name.endswith("GET"):
            stack.append(memo[int(argument)])
        elif name.startswith("TUPLE"):
            stack.append((1 + max(depths), len(values) + sum(sizes)))
            if stack[-1][0] > MOST_NESTED:
                return False
        else:
            stack += [None if kind is pickletools.markobject else (0, 0) for kind in operation.stack_after]
        if steps > MOST_STEPS:
            return False
    return True


def _is_stored(path: str) -> bool:
    """Whether torch can map the file into memory: it is an archive whose records are not compressed."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return all(record.compress_type == zipfile.ZIP_STORED for record in archive.infolist())


def check_is_file(path: str) -> None:
    """Refuse a pipe, which would never end, a device and a folder."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise CheckpointError(f"{path} is not a file, and a checkpoint is one")


def _check_first_bytes(path: str) -> None:
    """Refuse a file that is no file of torch at all."""
    with open(path, "rb") as file:
        head = file.read(256)
    if not head:
        raise DamagedCheckpointError(f"{path} is empty: writing or copying it was broken off. {ANOTHER}.")
    if head.startswith((ZIP, LEGACY)):
        return
    if head.startswith(b"version https://git-lfs"):
        remedy = "It is a Git LFS pointer: git lfs pull fetches the file itself."
    elif path.endswith(".safetensors"):
        remedy = "Convert the Hugging Face folder that it lies in with poolingformer convert to-fairseq."
    elif head.lstrip()[:1] == b"<":
        remedy = "A web page was saved in its place: download it again."
    else:
        remedy = f"It begins with {head[:16]!r}. Give a .pt file that fairseq-train or poolingformer convert wrote."
    raise DamagedCheckpointError(f"{path} is not a checkpoint. {remedy}")


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type where it has none."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def text_entry(holder: Any, name: str) -> str | None:
    """Return a text of a Namespace or dictionary; None where there is none."""
    value = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    return value if isinstance(value, str) else None


def recorded_folder(recorded: Any) -> Path | None:
    """Return the data folder that a checkpoint records, if it is there and has a dictionary or ``corpus.json``."""
    first = recorded[0] if isinstance(recorded, list) and recorded else recorded
    folder = first.split(":")[0] if isinstance(first, str) else ""
    return Path(folder) if folder and _has_dictionary(Path(folder)) else None


def _has_dictionary(folder: Path) -> bool:
    with contextlib.suppress(OSError):  # not there, or not readable
        return any(path.is_file() for path in (*folder.glob("dict*.txt"), folder / "corpus.json"))
    return False


def data_folder(checkpoint: Path, recorded: Any) -> Path:
    """Return a checkpoint's folder if it has a dictionary, else :func:`recorded_folder`'s: where none was named."""
    folder = None if _has_dictionary(checkpoint.parent) else recorded_folder(recorded)
    if folder is None:
        return checkpoint.parent
    logger.info("the dictionary is looked for in the data folder that %s records: %s", checkpoint, folder)
    return folder


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn the errors of building something from a checkpoint into one sentence with its file."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (CheckpointError, OSError):  # these name a file
        raise
    except (*DAMAGE, HydraException, OmegaConfBaseException, argparse.ArgumentError) as error:
        text = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())[:LONGEST]
        kind = "" if type(error) in (ValueError, ConfigurationError) else f"{type(error).__name__}: "
        raise CheckpointError(f"{path} cannot be used: {kind}{text}") from error


@contextlib.contextmanager
def checked_states(check_state: Callable[[str, Mapping[str, Any]], None]) -> Iterator[None]:
    """Within the block, check every checkpoint that fairseq reads, given its path and its state."""
    from fairseq import checkpoint_utils

    original: Callable = checkpoint_utils.load_checkpoint_to_cpu

    def load_checkpoint_to_cpu(path: str, *arguments: Any, **named: Any) -> dict[str, Any]:
        state = original(path, *arguments, **named)
        check_state(path, state)
        return state

    with set_within(checkpoint_utils, "load_checkpoint_to_cpu", load_checkpoint_to_cpu):
        yield
