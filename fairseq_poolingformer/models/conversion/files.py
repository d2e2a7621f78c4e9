"""Read and write Hugging Face folders, fairseq checkpoints and tokenizer folders."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from fairseq_poolingformer.compat.checkpoint_files import CheckpointError, load, read
from fairseq_poolingformer.models.conversion import gpt2_bpe
from fairseq_poolingformer.models.conversion.family import ConversionError, Family, Settings, State, listed
from fairseq_poolingformer.models.conversion.gpt2_bpe import GPT2Files
from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS, read_symbols

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
NO_PARAMETERS = ("config",)  # DeBERTa's published weights hold their configuration too
# As published: it includes the space before it, as the tokens that it replaces do.
MASK_TOKEN = {
    "__type": "AddedToken",
    "content": gpt2_bpe.MASK,
    "lstrip": True,
    "rstrip": False,
    "single_word": False,
    "normalized": False,
    "special": True,
}
TOKENIZER_CLASSES = {  # of GPT-2 BPE
    "bart": "BartTokenizer",
    "led": "LEDTokenizer",
    "roberta": "RobertaTokenizer",
    "longformer": "LongformerTokenizer",
    "deberta": "DebertaTokenizer",
    "poolingformer-bart": "BartTokenizer",
    "poolingformer-roberta": "RobertaTokenizer",
}


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a folder to write into, beside ``path``, that takes the name ``path`` when the block ends well.

    Raises:
        ConversionError: ``path`` exists and is no empty folder.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConversionError(f"{path} is there already: name a new folder, or move this one away first")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        partial.chmod(0o755)  # mkdtemp's folders are for their owner alone
        yield partial
        partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file.

    Raises:
        ConversionError: it is missing or no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConversionError(f"{path} is missing") from None
    except ValueError as error:
        raise ConversionError(f"{path} is not readable as JSON: {error}") from error


def write_json(path: Path, contents: Any) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(contents, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_config(folder: Path) -> Settings:
    """Return ``config.json``, with the settings of generation that newer folders keep in a file of their own.

    Raises:
        ConversionError: there is no such folder or no ``config.json``, or a file is no JSON object.
    """
    if not folder.is_dir():
        name = folder.as_posix()
        raise ConversionError(
            f"{name} is no folder. If it is the name of a model on the Hugging Face Hub, download it first: "
            f"hf download {name} --local-dir {folder.name}"
        )
    generation = folder / "generation_config.json"
    files = [generation] * generation.is_file() + [folder / "config.json"]
    contents = [read_json(path) for path in files]
    for path, content in zip(files, contents, strict=True):
        if not isinstance(content, dict):
            raise ConversionError(f"{path} is no JSON object: it must hold the model's settings by name")
    return {name: value for content in contents for name, value in content.items()}


def read_huggingface_weights(folder: Path) -> State:
    """Return all parameters of a Hugging Face folder, from one file or from the shards that an index lists.

    Raises:
        ConversionError: there are no weights, a shard is missing, or a file is damaged.
    """
    for name in WEIGHTS:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return _read_weights(folder / name)
        if index.is_file():
            state: State = {}
            weight_map = read_json(index).get("weight_map")
            if not weight_map:
                raise ConversionError(f'{index} has no "weight_map", which says what lies in which shard')
            for shard in sorted(set(weight_map.values())):
                state.update(_read_weights(folder / shard))
            if lacking := sorted(set(weight_map) - set(state)):
                raise ConversionError(f"{index} lists parameters that its shards lack: {', '.join(lacking)}")
            return state
    raise ConversionError(f"{folder} has neither {WEIGHTS[0]} nor {WEIGHTS[1]}, whole or in shards")


def _read_weights(path: Path) -> State:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = read(path)
    except FileNotFoundError:
        raise ConversionError(f"{path} is missing") from None
    except SafetensorError as error:
        raise ConversionError(
            f"{path} is damaged or cut short (safetensors says: {error}). Copy or download it again."
        ) from error
    except CheckpointError as error:
        raise ConversionError(str(error)) from error
    if not isinstance(state, dict):
        raise ConversionError(f"{path} holds a {type(state).__name__} in place of a dictionary of parameters by name")
    state = {name: value for name, value in state.items() if name not in NO_PARAMETERS}
    if odd := [str(name) for name, value in state.items() if not isinstance(value, torch.Tensor)]:
        raise ConversionError(f"{path}: these entries are no tensors: {listed(odd)}")
    return state


def write_huggingface_weights(folder: Path, state: State) -> None:
    """Write ``model.safetensors``."""
    save_file(state, folder / WEIGHTS[0], metadata={"format": "pt"})


def read_checkpoint(path: Path) -> tuple[Settings, State]:
    """Return the model settings and the parameters of a fairseq checkpoint.

    The settings have the ``data`` folder that the checkpoint was trained on, where it records one.

    Raises:
        ConversionError: the file is no fairseq checkpoint of a whole model.
    """
    if path.is_dir():
        found = sorted(file.name for file in path.glob("*.pt"))
        raise ConversionError(
            f"{path} is a folder: name a checkpoint in it, {' or '.join(found)}"
            if found
            else f"{path} is a folder without checkpoints: name a .pt file that fairseq-train wrote"
        )
    try:
        checkpoint = load(path)
    except FileNotFoundError:
        raise ConversionError(f"{path} is missing") from None
    except CheckpointError as error:
        raise ConversionError(str(error)) from error
    config = checkpoint.get("cfg") or {}
    settings = checkpoint.get("args") or config.get("model")
    if settings is None:
        raise ConversionError(f'{path} has neither "args" nor "cfg", so the sizes of the model are not known')
    task = config.get("task") or {}
    settings = {**_as_dict(task), **_as_dict(settings)}
    return settings, checkpoint["model"]


def _as_dict(settings: Any) -> Settings:
    return dict(settings) if isinstance(settings, Mapping) else vars(settings)


def find_tokenizer(checkpoint: Path, settings: Settings) -> Path:
    """Return the folder of a checkpoint's tokenizer: beside it, or in the data folder that it was trained on.

    Raises:
        ConversionError: neither has one.
    """
    folders = [checkpoint.parent, *(Path(folder) for folder in str(settings.get("data") or "").split(":") if folder)]
    for folder in folders:
        if (folder / "tokenizer").is_dir():
            return folder / "tokenizer"
    raise ConversionError(
        f"no tokenizer/ in {' or '.join(map(str, folders))}: name the folder with the model's encoder.json, vocab.bpe "
        "and dict.txt, or its sentencepiece model, with --tokenizer"
    )


def write_checkpoint(path: Path, settings: Settings, state: State) -> None:
    """Write an untrained model in the form that ``fairseq-train --restore-file`` and fairseq's hub interface load."""
    history = {
        "criterion_name": "CrossEntropyCriterion",
        "optimizer_name": "FairseqAdam",
        "lr_scheduler_state": {},
        "num_updates": 0,
    }
    checkpoint = {
        "args": argparse.Namespace(**settings),
        "cfg": None,
        "model": state,
        "optimizer_history": [history],
        "last_optimizer_state": None,
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}, "val_loss": None},
        "task_state": {},
    }
    torch.save(checkpoint, path)


def read_huggingface_tokenizer(folder: Path) -> tuple[dict[str, int], list[str]]:
    """Return token -> id, added tokens included, and the merges of a byte-level BPE tokenizer.

    Raises:
        ConversionError: the files are missing or are those of another kind of tokenizer.
    """
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        vocab = dict(read_json(folder / "vocab.json"))
        merges = gpt2_bpe.parse_merges((folder / "merges.txt").read_text(encoding="utf-8"))
    elif (folder / "tokenizer.json").is_file():
        contents = read_json(folder / "tokenizer.json")
        model = contents["model"]
        if model.get("type") != "BPE" or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
            raise ConversionError(f"{folder / 'tokenizer.json'} is not a byte-level BPE tokenizer")
        pairs = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
        vocab, merges = dict(model["vocab"]), gpt2_bpe.parse_merges("\n".join(pairs))
        vocab.update({token["content"]: token["id"] for token in contents.get("added_tokens", [])})
    else:
        raise ConversionError(f"{folder} has neither vocab.json with merges.txt nor tokenizer.json")
    if (folder / "added_tokens.json").is_file():
        vocab.update(read_json(folder / "added_tokens.json"))
    return vocab, merges


def write_huggingface_tokenizer(
    folder: Path, vocab: dict[str, int], tokenizer: GPT2Files, family: Family, max_length: int
) -> None:
    """Write ``vocab.json``, ``merges.txt`` and ``tokenizer_config.json``.

    Args:
        folder: where to.
        vocab: token -> embedding row, made from ``tokenizer``.
        tokenizer: fairseq's files.
        family: the model's.
        max_length: tokens that the encoder takes.
    """
    mask = family.special_tokens.get(gpt2_bpe.MASK, gpt2_bpe.MASK)
    vocab = family.write_vocabulary(vocab)
    write_json(folder / "vocab.json", vocab)
    (folder / "merges.txt").write_text(gpt2_bpe.format_merges(tokenizer.merges), encoding="utf-8")
    if family.model_type not in TOKENIZER_CLASSES:
        raise ConversionError(
            f"Hugging Face's {family.model_type} has no GPT-2 BPE; can convert: {', '.join(TOKENIZER_CLASSES)}"
        )
    write_tokenizer_config(
        folder,
        tokenizer_class=TOKENIZER_CLASSES[family.model_type],
        model_max_length=max_length,
        names=family.special_tokens,
        mask_token={**MASK_TOKEN, "content": mask} if mask in vocab else None,
        add_prefix_space=False,
        additional_special_tokens=gpt2_bpe.added_tokens(tokenizer),
    )


def write_tokenizer_config(folder: Path, *, names: Mapping[str, str] | None = None, **settings: Any) -> None:
    """Write ``tokenizer_config.json``: these settings, and the special symbols, as fairseq or ``names`` name them."""
    bos, pad, eos, unk = ((names or {}).get(symbol, symbol) for symbol in SPECIAL_SYMBOLS)
    special = {"bos_token": bos, "cls_token": bos, "pad_token": pad, "eos_token": eos, "sep_token": eos}
    write_json(folder / "tokenizer_config.json", {**settings, **special, "unk_token": unk})


def read_gpt2_files(folder: Path) -> GPT2Files:
    """Return fairseq's GPT-2 BPE from a folder of ``encoder.json``, ``vocab.bpe`` and ``dict.txt``.

    Raises:
        ConversionError: a file is missing or not what its name says.
    """
    for name in ("vocab.bpe", "dict.txt"):
        if not (folder / name).is_file():
            raise ConversionError(f"{folder / name} is missing")
    try:
        symbols = read_symbols(folder / "dict.txt")
    except ValueError as error:
        raise ConversionError(str(error)) from error
    merges = gpt2_bpe.parse_merges((folder / "vocab.bpe").read_text(encoding="utf-8"))
    return GPT2Files(merges, read_json(folder / "encoder.json"), symbols)


def write_gpt2_files(folder: Path, files: GPT2Files, dictionaries: tuple[str, ...] = ("dict.txt",)) -> None:
    """Write the dictionary under the names that fairseq's tasks look for, and this package's ``tokenizer`` folder."""
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    write_json(tokenizer / "config.json", {"kind": "gpt2"})
    # One line, as OpenAI's own file.
    (tokenizer / "encoder.json").write_text(json.dumps(files.encoder), encoding="utf-8")
    (tokenizer / "vocab.bpe").write_text(gpt2_bpe.format_merges(files.merges), encoding="utf-8")
    dictionary = gpt2_bpe.format_dictionary(files.symbols)
    for name in (*dictionaries, "tokenizer/dict.txt"):
        (folder / name).write_text(dictionary, encoding="utf-8")
