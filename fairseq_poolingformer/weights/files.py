"""Read and write the weights and settings of Hugging Face folders and fairseq checkpoints."""

from __future__ import annotations

import argparse
import errno
import glob
import json
import os
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from fairseq_poolingformer.checkpoints import OPTIMIZER, CheckpointError, load, read, recorded_folder
from fairseq_poolingformer.command import require_writable
from fairseq_poolingformer.settings import DEFAULTS
from fairseq_poolingformer.text.atomic_write import (
    LOCK,
    SUFFIX,
    atomic_write,
    disk_errors,
    lock_folder,
    remove_unlocked,
    unfinished_name,
)
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.weights import ConversionError, Settings, State, listed
from fairseq_poolingformer.weights.family import require_size
from fairseq_poolingformer.weights.heads import LONGEST_LABEL, class_of, labels_of

WIDTHS = ("vocab_size", "hidden_size", "intermediate_size", "d_model", "encoder_ffn_dim", "decoder_ffn_dim")
POSITIONS = ("max_position_embeddings", "max_encoder_position_embeddings", "max_decoder_position_embeddings")
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
NO_PARAMETERS = ("config",)  # DeBERTa's published weights also hold the configuration


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Make a folder beside ``path`` to write into, and rename it to ``path`` if the block ends without an error."""
    require_new_folder(path)
    partial, lock = unfinished_name(path), None
    try:
        with disk_errors(path, partial):
            partial.mkdir()
            lock = lock_folder(partial)
            yield partial
            require_new_folder(path, partial=partial)
            (partial / LOCK).unlink()
            partial.replace(path)
    except SafetensorError as error:
        raise OSError(errno.EIO, f"could not be written ({error})", str(path)) from error
    finally:
        if lock is not None:
            os.close(lock)
        shutil.rmtree(partial, ignore_errors=True)


def require_new_folder(path: Path, partial: Path | None = None) -> None:
    """Ask before the work whether a folder can be made; ``own`` is this process's unfinished one."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConversionError(f"{path} is there already: name a new folder, or move this one away first")
    path.parent.mkdir(parents=True, exist_ok=True)
    for other in path.parent.glob(f"{glob.escape(path.name)}.*{SUFFIX}"):
        if other != partial and not remove_unlocked(other):
            raise ConversionError(
                f"{path}: another process is making this folder; wait for it, or name another one. If there is no "
                f"such process any more, delete {other}"
            )
    if partial is None:
        require_writable(path / "x" if path.is_dir() else path)


@contextmanager
def conversion_errors(path: Path) -> Iterator[None]:
    """Turn the errors of reading the weights in ``path`` into a ConversionError."""
    try:
        yield
    except FileNotFoundError:
        raise ConversionError(f"{path} is missing") from None
    except SafetensorError as error:
        raise ConversionError(
            f"{path} is damaged or cut short (safetensors says: {error}). Copy or download it again."
        ) from error
    except CheckpointError as error:
        raise ConversionError(str(error)) from error


@contextmanager
def tokenizer_errors(folder: Path) -> Iterator[None]:
    """Turn the errors of a tokenizer's files that hold something else into a ConversionError."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError, struct.error) as error:
        raise ConversionError(
            f"{folder}: its tokenizer files hold something else than a tokenizer ({type(error).__name__}: {error})"
        ) from error


def write_json(path: Path, contents: Any) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(contents, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_config(folder: Path) -> Settings:
    """Return the settings of ``config.json`` and, where there is one, ``generation_config.json``."""
    if not folder.is_dir():
        name = folder.as_posix()
        raise ConversionError(
            f"{name} is no folder. If it is the name of a model on the Hugging Face Hub, download it first: "
            f"hf download {name} --local-dir {folder.name}"
        )
    if not (folder / "config.json").is_file():  # a pipe would never end
        raise ConversionError(f"{folder / 'config.json'} is missing, or is not a file")
    files = [folder / name for name in ("generation_config.json", "config.json")]
    contents = [read_json_file(path) for path in files if path.is_file()]
    labels = labels_of(contents[-1])
    settings = {name: value for content in contents for name, value in content.items()}
    return {**settings, "class_name": class_of(contents[-1]), **({"labels": labels} if labels else {})}


def read_huggingface_weights(folder: Path) -> State:
    """Return the parameters of a Hugging Face folder, from one file or from the shards that an index lists."""
    paths, names = _weight_files(folder)
    if not paths:
        raise ConversionError(f"{folder} has neither {WEIGHTS[0]} nor {WEIGHTS[1]}, whole or in shards")
    state: State = {}
    for path in paths:
        state.update(_read_weights(path))
    if lacking := sorted(names - set(state)):
        raise ConversionError(f"{folder}: its index lists parameters that its shards lack: {listed(lacking)}")
    return state


def check_counts(config: Settings, folder: Path) -> None:
    """Refuse a configuration with more layers, labels, positions or width than the weights have tensors or rows."""
    has_table = config.get("absolute_positions", config.get("position_biased_input", True))
    tables = POSITIONS if has_table and "modernbert" not in str(config.get("model_type")) else ()
    rows_of = ("num_labels", *WIDTHS, *tables)
    counts = {name for name in config if name in rows_of or name.endswith("layers")} - set(DEFAULTS)
    tensors, most_rows = 0, 0
    for path in _weight_files(folder)[0]:
        rows = _rows(path)
        tensors, most_rows = tensors + len(rows), max([most_rows, *rows])
    for name in counts:
        require_size("config.json has", name, config[name])
        if tensors and config[name] > (tensors if name.endswith("layers") else most_rows):
            raise ConversionError(
                f"{folder / 'config.json'} has {name} {config[name]}, and the weights beside it are {tensors} tensors "
                f"of up to {most_rows} rows: they belong to different models"
            )


def _weight_files(folder: Path) -> tuple[list[Path], set[str]]:
    """Return the files of a folder's weights, if any, and the names of the parameters that an index lists."""
    for name in WEIGHTS:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return [folder / name], set()
        if index.is_file():
            weight_map = read_json_file(index).get("weight_map")
            if not weight_map or not isinstance(weight_map, dict):
                raise ConversionError(
                    f'{index} has no "weight_map", which names each parameter\'s shard: download it again'
                )
            for shard in weight_map.values():
                if not isinstance(shard, str) or Path(shard).name != shard or not (folder / shard).is_file():
                    raise ConversionError(f"{index} names {shard!r}, which is not a file of this folder")
            return [folder / shard for shard in sorted(set(weight_map.values()))], set(weight_map)
    return [], set()


def _rows(path: Path) -> list[int]:
    """Return the first size of each tensor of a file, of whose numbers none is read."""
    with conversion_errors(path):
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
        else:
            values = contents.values() if isinstance(contents := read(path, has_tensors=False), dict) else ()
            shapes = [list(value.shape) for value in values if type(value) in (torch.Tensor, torch.nn.Parameter)]
    most = path.stat().st_size  # a shape alone costs a file nothing
    return [min(shape[0], most) for shape in shapes if shape]


def _read_weights(path: Path) -> State:
    with conversion_errors(path):
        state = load_file(path) if path.suffix == ".safetensors" else read(path)
    if not isinstance(state, dict):
        raise ConversionError(f"{path} holds a {type(state).__name__} in place of a dictionary of parameters by name")
    state = {name: value for name, value in state.items() if name not in NO_PARAMETERS}
    if odd := [str(name) for name, value in state.items() if not isinstance(value, torch.Tensor)]:
        raise ConversionError(f"{path}: these entries are no tensors: {listed(odd)}")
    if odd := [str(name) for name, value in state.items() if not isinstance(name, str) or not _is_plain(value)]:
        raise ConversionError(f"{path}: these are not plain tensors of numbers: {listed(odd)}")
    return state


def _is_plain(value: torch.Tensor) -> bool:
    """Whether a tensor is neither sparse, nested, quantized, complex nor without contents, and its memory is whole."""
    if value.layout != torch.strided or value.is_nested or value.is_quantized or value.is_complex():
        return False
    is_whole = value.device.type == "cpu" and value.numel() * value.element_size() <= value.untyped_storage().nbytes()
    return is_whole and not isinstance(value, torch.nn.parameter.UninitializedTensorMixin)


def save_safetensors(state: State, path: Path) -> None:
    """Write tensors to a file that whoever may read other new files may read; safetensors' own only its owner."""
    path.touch()
    mode = path.stat().st_mode
    save_file(dict(state), path, metadata={"format": "pt"})
    path.chmod(mode)


def read_training(path: Path) -> tuple[Settings, State, int | None]:
    """Return settings, parameters and number of updates, if any, of a fairseq checkpoint."""
    # settings also have ``data``, if that folder is there, and the task's ``labels``
    if path.is_dir():
        checkpoints = sorted(file.name for file in path.glob("*.pt"))
        raise ConversionError(
            f"{path} is a folder: name a checkpoint in it, {' or '.join(checkpoints)}"
            if checkpoints
            else f"{path} is a folder without checkpoints: name a .pt file that fairseq-train wrote"
        )
    with conversion_errors(path):
        checkpoint = load(path, (OPTIMIZER,))
    config = checkpoint.get("cfg") or {}
    settings = checkpoint.get("args") or config.get("model")
    if settings is None:
        raise ConversionError(
            f'{path} has neither "args" nor "cfg", so the sizes of the model are unknown: give a checkpoint that '
            "fairseq-train or poolingformer convert wrote"
        )
    settings = {**_as_dict(config.get("task") or {}), **_as_dict(settings)}
    if (folder := recorded_folder(settings.pop("data", None))) is not None:
        settings["data"] = str(folder)
    task_state = checkpoint.get("task_state") or {}
    labels = task_state.get("labels")
    if isinstance(labels, list) and all(isinstance(label, str) and len(label) < LONGEST_LABEL for label in labels):
        settings["labels"] = labels
    history = checkpoint.get("optimizer_history") or [{}]
    return settings, checkpoint["model"], history[-1].get("num_updates") or None


def _as_dict(settings: Any) -> Settings:
    return dict(settings) if isinstance(settings, Mapping) else vars(settings)


def find_tokenizer(checkpoint: Path, settings: Settings) -> Path:
    """Return the folder of a checkpoint's tokenizer, from beside the checkpoint or from its data folder."""
    folders = [checkpoint.parent, *([Path(settings["data"])] if settings.get("data") else [])]
    for folder in folders:
        if (folder / "tokenizer").is_dir():
            return folder / "tokenizer"
    raise ConversionError(
        f"no tokenizer/ in {' or '.join(map(str, folders))}: name the folder with the model's encoder.json, vocab.bpe "
        "and dict.txt, or its sentencepiece model, with --tokenizer"
    )


def write_checkpoint(path: Path, settings: Settings, state: State) -> None:
    """Write a checkpoint of update 0, which ``fairseq-train --restore-file`` and fairseq's hub interface load."""
    history = {
        "criterion_name": "CrossEntropyCriterion",
        "optimizer_name": "FairseqAdam",
        "lr_scheduler_state": {},
        "num_updates": 0,
    }
    state_of_task = {"labels": settings["labels"]} if settings.get("labels") is not None else {}
    checkpoint = {
        "args": argparse.Namespace(**{name: value for name, value in settings.items() if name not in state_of_task}),
        "cfg": None,
        "model": state,
        "optimizer_history": [history],
        OPTIMIZER: None,
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}, "val_loss": None},
        "task_state": state_of_task,
    }
    with atomic_write(Path(path)) as unfinished:  # a state that was read from this path may lie in its memory
        torch.save(checkpoint, unfinished)
