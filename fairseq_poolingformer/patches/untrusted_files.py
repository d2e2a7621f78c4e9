"""Untrusted files: a checkpoint runs nothing, writes nothing and asks no address of its choice.

A checkpoint's options arrive as they were trained, in all sections, and may name files that are read. The folder of
the training's data is the exception, as :func:`.data_folder` says. Values that become part of a file's name, of an
address or of a command are checked: names here, paths in :func:`check_stored_dataset`, files in :func:`plain_file`.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import itertools
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

from fairseq_poolingformer.checkpoints import (
    OPTIMIZER,
    CheckpointError,
    ConfigurationError,
    check_is_file,
    data_folder,
    explained,
    load,
)
from fairseq_poolingformer.patching import set_within
from fairseq_poolingformer.text.dictionary import read_entries
from fairseq_poolingformer.text.sequences import check_dataset

# Options that say how a checkpoint was trained and not what it computes: what is imported, and written as soon as a
# criterion is built; what needs the machine of the training; a way of training in parallel, which some losses refuse.
REPLACED = {"user_dir": None, "save_predictions": None, "use_plasma_view": False, "tpu": False}
REPLACED |= {"ddp_backend": "legacy_ddp"}
LARGEST = 100_000  # characters of a literal, items of a list in it, and options of a checkpoint
MOST_UNSEEN = 100  # layers that a model may have without a tensor of its own for each
# options that fairseq makes names of files from, and what such a part of a name may have
OF_NAMES, PLAIN = re.compile(r"(.*_)?lang|langs|lang_pairs|.*_subset|dataset_impl"), re.compile(r"[\w,.-]*")
OVERWRITE = "#fairseq:overwrite"  # ends the line of a symbol of a dictionary that may be there already


# checkpoints


def read_as_data(
    original: Callable | None, file: IO[bytes], unread: Collection[str] = (), **unused: Any
) -> dict[str, Any]:
    """Read the checkpoint that fairseq has opened as data."""
    with explained(file.name):
        return as_trained(load(file.name, unread), Path(file.name), is_used=bool(unread))


def plain_file(fetched: Callable, name: str | os.PathLike) -> str:
    """Return the path of a file that a checkpoint's options name; of addresses, fairseq's own defaults are fetched."""
    from fairseq.registry import REGISTRIES

    kinds = REGISTRIES["bpe"]["dataclass_registry"].values()
    defaults = [field.default for kind in kinds for field in dataclasses.fields(kind)]
    if not os.path.isfile(name) and not os.path.isdir(name) and name not in defaults:  # a pipe would have no end
        raise CheckpointError(
            f"{name} is not a file, and a checkpoint's options may name nothing else: give from_pretrained the path of "
            "yours under the option's name"
        )
    return fetched(name)


def use_options_of_a_checkpoint(original: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call what builds tokenizers from a checkpoint's options; those of command lines may name any address."""
    from fairseq import file_utils

    with set_within(file_utils, "cached_path", partial(plain_file, file_utils.cached_path)):
        return original(*args, **kwargs)


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
    """Name the checkpoint from which no model can be built."""
    with explained(os.pathsep.join(map(str, filenames))), without_optimizer():
        for name in filenames:
            check_is_file(name)
        return use_options_of_a_checkpoint(original, filenames, *args, **kwargs)


def as_trained(state: Mapping[str, Any], checkpoint: Path, is_used: bool = True) -> dict[str, Any]:
    """Return a checkpoint's state with its options as they were trained, but :data:`REPLACED` and the data folder."""
    # a training that goes on uses its own options, so it may have names of any kind
    left = itertools.count(LARGEST, -1)
    most_layers = max(MOST_UNSEEN, len(state.get("model") or ()))

    def option(value: Any, name: str = "") -> Any:
        if not next(left):  # a crafted file may hold one object many times
            raise ConfigurationError(f"it has more than {LARGEST} options")
        if name in REPLACED:
            return REPLACED[name]
        if name == "data":
            return str(data_folder(checkpoint, value))
        if is_used and type(value) is int and str(name).endswith("layers") and value > most_layers:
            raise ConfigurationError(
                f"its option {name} is {value}, and it has {len(state.get('model') or ())} tensors"
            )
        if isinstance(value, Namespace):
            return Namespace(**option(vars(value)))
        if isinstance(value, Mapping):
            return {key: option(inner, key) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(option(inner, name) for inner in value)
        if isinstance(value, str) and "${" in value:  # fairseq saves what this stands for
            raise ConfigurationError(f"its option {value[:200]!r} is no plain data: omegaconf would look it up")
        if is_used and isinstance(value, str) and OF_NAMES.fullmatch(str(name)) and not PLAIN.fullmatch(value):
            raise ConfigurationError(f"its option {name} is {value[:200]!r}, which would be a part of names of files")
        return value

    return {**state, **{name: option(state[name]) for name in ("args", "cfg") if state.get(name)}}


def recorded_data(state: Mapping[str, Any]) -> Any:
    """Return what a checkpoint records as its training's data, for :func:`.data_folder`."""
    cfg = state.get("cfg") or {}
    sections = (state.get("args"), cfg.get("task"), cfg.get("model"))
    folders = [each.get("data") if isinstance(each, Mapping) else getattr(each, "data", None) for each in sections]
    return next((data for data in folders if data is not None), None)


# strings that fairseq evaluates as Python, such as --encoder-layers "[(512, 3)] * 20" of fconv


def evaluate_literals_only() -> None:
    """Give fairseq's modules :func:`literal` as ``eval``: it reads the same strings and runs nothing."""
    from fairseq import checkpoint_utils, criterions, models, optim, tasks  # noqa: F401  (loads the modules)

    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "fairseq" and module is not None:
            vars(module).setdefault("eval", literal)


def literal(text: Any) -> Any:
    """Read a Python literal, in which lists may also be added and repeated: ``"[(512, 3)] * 20 + [(8, 1)]"``."""
    if not isinstance(text, str):
        return text
    try:
        if len(text) > LARGEST:
            raise ValueError(f"{len(text)} characters")
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ConfigurationError(
            f"{text[:200]!r} is not a number, text, list or tuple; nothing else is read in a configuration"
        ) from error


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, list | tuple | str) and isinstance(count, int):
                if len(sequence) * count > LARGEST:
                    raise ValueError(f"{len(sequence) * count} items")
                return sequence * count
        return left * right
    if isinstance(node, ast.List | ast.Tuple):
        values = [_value(element) for element in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    return ast.literal_eval(node)


# dictionaries and datasets


class DictionaryError(ValueError):
    """A dictionary that cannot be read; the message names its file and line."""


def check_dictionary(original: Callable, self: Any, f: Any) -> None:
    """Check a dictionary before fairseq reads it, which says neither the file nor the line of most faults."""
    from fairseq.file_io import PathManager

    if isinstance(f, str):
        seen = set(self.symbols)
        try:
            for number, symbol, _, is_overwritten in read_entries(PathManager.get_local_path(f), OVERWRITE):
                if symbol in seen and not is_overwritten:
                    raise ValueError(f"{f}, line {number}: symbol {symbol[:100]!r} is there a second time")
                seen.add(symbol)
        except ValueError as error:
            raise DictionaryError(f"{error}; take the dictionary from where it was made again") from None
    original(self, f)


def check_stored_dataset(original: Callable, path: str, impl: str, *args: Any, **kwargs: Any) -> Any:
    """Check a dataset before fairseq opens it: fairseq trusts an index, and gives a path of FASTA to a shell."""
    if impl == "fasta" or not re.fullmatch(r"[\w.-]+", os.path.basename(path)):
        raise ConfigurationError(
            f"{path[:200]} is not opened as a dataset of kind {impl}: for FASTA fairseq runs a shell, so binarize it "
            "by fairseq-preprocess; names have letters, digits, '_', '.' and '-' alone, so rename others"
        )
    if impl == "mmap" and Path(f"{path}.idx").exists() and Path(f"{path}.bin").exists():
        check_dataset(path)
    return original(path, impl, *args, **kwargs)
