"""Files of strangers: checkpoints are data, nothing that their options say is run or opened, archives keep to a folder.

Of a checkpoint's configuration the options of the model, the task and the criterion are used, as the training had them.
Paths, and what holds ``${…}``, take their default, and everything else in the file is left out: outputs, logs,
generation, ``user_dir``. The exception is the folder of the training's data, and only as :func:`.data_folder` says.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import functools
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
    ConfigurationError,
    data_folder,
    entry,
    explained,
    load,
    model_folder,
)
from fairseq_poolingformer.patching import set_within
from fairseq_poolingformer.text.dictionary import read_entries
from fairseq_poolingformer.text.sequences import check_dataset

KINDS = {"model": "arch", "task": "task", "criterion": "criterion"}  # section of a configuration -> name in a Namespace
NAMES = (*KINDS.values(), "optimizer", "_name")
DDP, NO_DDP = "ddp_backend", "legacy_ddp"  # which no loss refuses; a model that is read is not trained by it
# options that name what is opened
PATHS = re.compile(
    r"(.*_)?(path|(log)?dir|file|folder|dict|dictionary|checkpoint|from|script|yaml|lexicon|json|codes|url|model)s?|"
    r"wer_args|lang_to_offline_shard_ratio|extra_data|replace_unk|save_predictions"
)
LARGEST = 100_000  # characters of a literal, and items of a list in it
OVERWRITE = "#fairseq:overwrite"  # ends the line of a symbol of a dictionary that may be there already


# checkpoints


def read_as_data(
    original: Callable | None, file: IO[bytes], unread: Collection[str] = (), **unused: Any
) -> dict[str, Any]:
    """Read the checkpoint that fairseq has opened as data, and of its configuration what builds a model."""
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
    """Name the checkpoint from which no model can be built."""
    with explained(os.pathsep.join(map(str, filenames))), without_optimizer():
        return original(filenames, *args, **kwargs)


def restricted(state: Mapping[str, Any], checkpoint: Path) -> dict[str, Any]:
    """Return a checkpoint's state with what is used of its configuration."""
    state = dict(state)
    args, cfg = state.get("args"), state.get("cfg")
    if args is not None:
        defaults = {}
        for kind, key in KINDS.items():
            defaults |= defaults_of(kind, entry(args, key))
        state["args"] = Namespace(**{DDP: NO_DDP, **_of_command_line(vars(args), defaults, checkpoint)})
    if cfg:
        names = {kind: entry(cfg.get(kind), "_name") or entry(cfg.get(kind), key) for kind, key in KINDS.items()}
        own = {kind: defaults_of(kind, name) for kind, name in names.items()}
        state["cfg"] = copy.deepcopy(_default_sections())
        for kind in KINDS:
            given = cfg.get(kind)
            if isinstance(given, Namespace):  # the whole command line, which models read beyond their own options
                defaults = {**own["model"], **own["task"], **own["criterion"], **own[kind]}
                state["cfg"][kind] = Namespace(**_of_command_line(vars(given), defaults, checkpoint))
            elif given is not None:
                state["cfg"][kind] = _kept(given, own[kind], checkpoint) | {"_name": names[kind]}
    return state


def defaults_of(kind: str, name: str | None) -> dict[str, Any]:
    """Return the options of a model, task or criterion with their defaults; ``...`` where another option has it."""
    from fairseq import criterions, models, tasks

    registries = {
        "model": {**models.MODEL_REGISTRY, **models.ARCH_MODEL_REGISTRY},
        "task": tasks.TASK_REGISTRY,
        "criterion": criterions.CRITERION_REGISTRY,
    }
    settings = Namespace()
    if kind == "model" and name in models.ARCH_CONFIG_REGISTRY:  # which may set more than is declared
        with contextlib.suppress(AttributeError):  # one that needs options of a task
            models.ARCH_CONFIG_REGISTRY[name](settings)
    found = registries[kind].get(name)
    parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
    if found is not None:
        found.add_args(parser)  # but those that are other options' by default, such as the seed
    fields = getattr(getattr(found, "__dataclass", None), "__dataclass_fields__", ())
    return {**vars(settings), **dict.fromkeys(fields, ...), **{each.dest: each.default for each in parser._actions}}


def _of_command_line(given: Mapping[str, Any], defaults: Mapping[str, Any], checkpoint: Path) -> dict[str, Any]:
    """Return what is used of a training's whole command line."""
    return _kept({key: value for key, value in given.items() if key in defaults or key in NAMES}, defaults, checkpoint)


def _kept(given: Mapping[str, Any], defaults: Mapping[str, Any], checkpoint: Path) -> dict[str, Any]:
    """Return options as the training had them, but paths and ``${…}``, which take their default."""
    kept = {}
    for name, value in given.items():
        if name == "data":
            kept[name] = str(data_folder(checkpoint, value))
        elif name == DDP:
            kept[name] = NO_DDP
        elif name in ("use_plasma_view", "tpu"):  # of the machine of the training
            continue
        elif isinstance(value, bool | int | float | None):
            kept[name] = value
        elif isinstance(value, Mapping):  # of a model within the model
            kept[name] = _kept(value, {}, checkpoint)
        elif not PATHS.fullmatch(name) and "${" not in str(value):
            kept[name] = value
        elif defaults.get(name, ...) is not ...:
            kept[name] = defaults[name]
    return kept


@functools.cache
def _default_sections() -> dict[str, Any]:
    from fairseq.dataclass.configs import FairseqConfig
    from omegaconf import OmegaConf

    sections = OmegaConf.to_container(OmegaConf.structured(FairseqConfig), resolve=True, enum_to_str=True)
    sections["distributed_training"][DDP] = NO_DDP
    return sections | dict.fromkeys((*KINDS, "optimizer", "lr_scheduler", "scoring", "bpe", "tokenizer"))


def recorded_data(state: Mapping[str, Any]) -> Any:
    """Return what a checkpoint records as its training's data, for :func:`.data_folder`."""
    cfg = state.get("cfg") or {}
    sections = (state.get("args"), cfg.get("task"), cfg.get("model"))
    found = [each.get("data") if isinstance(each, Mapping) else getattr(each, "data", None) for each in sections]
    return next((data for data in found if data is not None), None)


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


# dictionaries, datasets and archives


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
    """Check a memory-mapped dataset before fairseq opens it; fairseq trusts its index, whoever wrote it."""
    if impl == "mmap" and Path(f"{path}.idx").exists() and Path(f"{path}.bin").exists():
        check_dataset(path)
    return original(path, impl, *args, **kwargs)


def unpack_within_folder(original: Callable, name: str | os.PathLike, **unused: Any) -> str:
    """See :func:`model_folder`."""
    return model_folder(name)
