"""Folders of transformers that others made: opened with every weight, or refused in a sentence that names the file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import GenerationConfig, PreTrainedModel

from fairseq_poolingformer.text.json_file import read_json_file

CONFIG, GENERATION = "config.json", "generation_config.json"
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
OBJECTS = (CONFIG, GENERATION, "tokenizer_config.json", "tokenizer.json", "special_tokens_map.json", *INDEXES)
OBJECTS += ("added_tokens.json", "vocab.json")
SHOWN = 3  # names of weights in a message
FAULTS = {  # of transformers' loading_info
    "missing_keys": "lacks weights that {0} needs, which would be random",
    "unexpected_keys": "has weights that {0} does not",
    "mismatched_keys": "has weights of other shapes than {0}",
}
# Not built, and never read: before transformers 4.0, classifiers of RoBERTa's kin and of Longformer had a pooler beside
# their head. (transformers itself passes over position_ids, BART's version and T5's positions of cross-attention.)
UNUSED = [f"{body}.pooler.dense.{kind}" for body in ("roberta", "longformer") for kind in ("weight", "bias")]


class FolderError(ValueError):
    """Its message names a folder, or a file of it, and what is wrong there."""


@contextlib.contextmanager
def explained(place: str, part: str = CONFIG) -> Iterator[None]:
    """Turn errors of transformers, tokenizers and safetensors into a sentence that names a file, or files."""
    try:
        yield
    except (FolderError, MemoryError, torch.OutOfMemoryError):
        raise
    except BaseException as error:  # tokenizers raises Exception itself, or panics
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:200]
        named = "" if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: "
        raise FolderError(f"{place}: {part} cannot be used ({named}{reason})") from error


def check(folder: Path) -> None:
    """Refuse JSON that is damaged, weights that are cut, and an index that names files outside of the folder."""
    contents = {}
    for name in OBJECTS:
        if (path := folder / name).is_file():
            try:
                contents[name] = read_json_file(path)
            except ValueError as error:
                raise FolderError(str(error)) from error
    for name in INDEXES:
        shards = contents.get(name, {}).get("weight_map", {})
        for shard in shards.values() if isinstance(shards, dict) else [shards]:
            if not isinstance(shard, str) or Path(shard).name != shard:
                raise FolderError(
                    f"{folder / name}: weight_map must name files of this folder, has {str(shard)[:60]!r}"
                )
            if not (folder / shard).is_file():
                raise FolderError(f"{folder / shard}: is missing, and {name} names it; fetch the folder again")
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise FolderError(f"{path}: cut or damaged ({error}); fetch it again") from error


def load(auto: Any, place: str, new_head: bool = False, new_level: bool = False, **options: Any) -> PreTrainedModel:
    """Load a model with all its weights but a new head's or level two's; FolderError for others that are amiss."""
    folder = Path(place)
    if folder.is_dir():
        check(folder)
    with explained(place, f"{CONFIG} with the weights"):
        model, names = auto.from_pretrained(place, output_loading_info=True, ignore_mismatched_sizes=True, **options)
    is_head = _head_of(model)

    def is_new(name: str) -> bool:
        return (new_head and is_head(name)) or (new_level and ".pooled_" in name)

    for kind, fault in FAULTS.items():
        keys = sorted(key if isinstance(key, str) else key[0] for key in names[kind])
        wrong = [key for key in keys if not is_new(key) and (kind != "unexpected_keys" or key not in UNUSED)]
        if wrong:
            more = f" and {len(wrong) - SHOWN:,} more" if len(wrong) > SHOWN else ""
            said = fault.format(type(model).__name__)
            raise FolderError(f"{place}: {said}: {', '.join(wrong[:SHOWN])}{more}; save the model as this class")
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise FolderError(f"{place}: {name} has values that are NaN or infinite; take an earlier checkpoint")
    if (folder / GENERATION).is_file():
        with explained(place, GENERATION):
            GenerationConfig.from_pretrained(place)
    return model


def _head_of(model: PreTrainedModel) -> Callable[[str], bool]:
    """Whether a name is of a weight above the base model; a pooler counts as head, as some heads have none."""
    prefix = f"{model.base_model_prefix}."
    if model.base_model is model:  # T5's kind, whose body has no prefix
        return lambda name: name.startswith("lm_head")
    return lambda name: not name.startswith(prefix) or name.startswith(f"{prefix}pooler.")


def check_ids(features: list[dict[str, Any]], model: torch.nn.Module, place: str) -> None:
    """Refuse a tokenizer that gives ids beyond the model's table of embeddings."""
    rows = model.get_input_embeddings().num_embeddings
    largest = max((max(one["input_ids"], default=0) for one in features), default=0)
    if largest >= rows:
        raise FolderError(f"{place}: its tokenizer gives id {largest:,}, and the model has {rows:,} rows of embeddings")
