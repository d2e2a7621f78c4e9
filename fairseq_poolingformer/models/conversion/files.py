"""Read and write Hugging Face folders, fairseq checkpoints and tokenizer folders."""

from __future__ import annotations

import argparse
import json
import pickle
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from fairseq_poolingformer.models.conversion import gpt2_bpe
from fairseq_poolingformer.models.conversion.family import ConversionError, Family, Settings, State
from fairseq_poolingformer.models.conversion.gpt2_bpe import GPT2Files
from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS, read_symbols

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
# As published: it takes the space before it, as the tokens that it stands for do.
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
        ConversionError: there is no ``config.json``, or a file is no JSON.
    """
    generation = folder / "generation_config.json"
    return {**(read_json(generation) if generation.is_file() else {}), **read_json(folder / "config.json")}


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
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except FileNotFoundError:
        raise ConversionError(f"{path} is missing") from None
    except (SafetensorError, pickle.UnpicklingError, EOFError, RuntimeError) as error:
        raise ConversionError(f"{path} is not readable as weights: {error}") from error


def write_huggingface_weights(folder: Path, state: State) -> None:
    """Write ``model.safetensors``."""
    save_file(state, folder / WEIGHTS[0], metadata={"format": "pt"})


def read_checkpoint(path: Path) -> tuple[Settings, State]:
    """Return the model settings and the parameters of a fairseq checkpoint.

    Raises:
        ConversionError: the file is no fairseq checkpoint of a whole model.
    """
    # Not the context manager safe_globals: it would take the class off the list of a process that has put it there.
    torch.serialization.add_safe_globals([argparse.Namespace])
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ConversionError(f"{path} is missing") from None
    except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
        raise ConversionError(f"{path} is not readable as a fairseq checkpoint: {error}") from error
    if not isinstance(checkpoint, dict) or "model" not in checkpoint:
        raise ConversionError(f'{path} is not a fairseq checkpoint: it has no "model"')
    settings = checkpoint.get("args") or (checkpoint.get("cfg") or {}).get("model")
    if settings is None:
        raise ConversionError(f'{path} has neither "args" nor "cfg", so the sizes of the model are not known')
    settings = dict(settings) if isinstance(settings, dict) else vars(settings)
    return settings, checkpoint["model"]


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
        if model.get("type") == "Unigram":
            raise ConversionError(
                f"{folder / 'tokenizer.json'} is made from a sentencepiece model, and that itself is needed: "
                "put the model's sentencepiece.bpe.model (published beside its weights) into the folder"
            )
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
