"""Read and write tokenizers: Hugging Face's files of a GPT-2 BPE, and fairseq's with this package's ``tokenizer/``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS, read_symbols
from fairseq_poolingformer.weights import ConversionError, files, gpt2_bpe
from fairseq_poolingformer.weights.family import Family
from fairseq_poolingformer.weights.gpt2_bpe import GPT2Files

# As published: <mask> includes the space before it, as the tokens that it replaces do.
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
    "mbart": "BartTokenizer",
    "poolingformer-bart": "BartTokenizer",
    "poolingformer-mbart": "BartTokenizer",
    "poolingformer-roberta": "RobertaTokenizer",
}


def read_huggingface_tokenizer(folder: Path) -> tuple[dict[str, int], list[str]]:
    """Return token -> id, added tokens included, and the merges of a byte-level BPE tokenizer.

    Raises:
        ConversionError: the files are missing or belong to another kind of tokenizer.
    """
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        vocab = dict(files.read_json(folder / "vocab.json"))
        merges = gpt2_bpe.parse_merges(files.read_text(folder / "merges.txt"))
    elif (folder / "tokenizer.json").is_file():
        contents = files.read_json(folder / "tokenizer.json")
        model = contents["model"]
        if model.get("type") != "BPE" or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
            raise ConversionError(
                f"{folder / 'tokenizer.json'} is not a byte-level BPE tokenizer; beside these, only XLM-R's "
                "sentencepiece tokenizer converts"
            )
        pairs = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
        vocab, merges = dict(model["vocab"]), gpt2_bpe.parse_merges("\n".join(pairs))
        vocab.update({token["content"]: token["id"] for token in contents.get("added_tokens", [])})
    else:
        raise ConversionError(f"{folder} has neither vocab.json with merges.txt nor tokenizer.json")
    if (folder / "added_tokens.json").is_file():
        vocab.update(files.read_json(folder / "added_tokens.json"))
    return vocab, merges


def write_huggingface_tokenizer(
    folder: Path, vocab: dict[str, int], tokenizer: GPT2Files, family: Family, max_length: int
) -> None:
    """Write ``vocab.json``, ``merges.txt`` and ``tokenizer_config.json``.

    Args:
        folder: the folder to write into.
        vocab: token -> embedding row, with the tokens of ``tokenizer``.
        tokenizer: fairseq's files.
        family: the family of the model.
        max_length: tokens that the encoder takes.
    """
    mask = family.special_tokens.get(gpt2_bpe.MASK, gpt2_bpe.MASK)
    vocab = family.write_vocabulary(vocab)
    files.write_json(folder / "vocab.json", vocab)
    (folder / "merges.txt").write_text(gpt2_bpe.format_merges(tokenizer.merges), encoding="utf-8")
    if family.model_type not in TOKENIZER_CLASSES:
        raise ConversionError(
            f"Hugging Face's {family.model_type} has no GPT-2 BPE tokenizer; these have one: "
            f"{', '.join(TOKENIZER_CLASSES)}"
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
    """Write ``tokenizer_config.json``: the settings, and the special symbols, renamed as ``names`` says."""
    bos, pad, eos, unk = ((names or {}).get(symbol, symbol) for symbol in SPECIAL_SYMBOLS)
    special = {"bos_token": bos, "cls_token": bos, "pad_token": pad, "eos_token": eos, "sep_token": eos}
    files.write_json(folder / "tokenizer_config.json", {**settings, **special, "unk_token": unk})


def read_gpt2_files(folder: Path) -> GPT2Files:
    """Return fairseq's GPT-2 BPE from a folder of ``encoder.json``, ``vocab.bpe`` and ``dict.txt``.

    Raises:
        ConversionError: a file is missing, or its contents have another form.
    """
    for name in ("vocab.bpe", "dict.txt"):
        if not (folder / name).is_file():
            raise ConversionError(f"{folder / name} is missing")
    try:
        symbols = read_symbols(folder / "dict.txt")
    except ValueError as error:
        raise ConversionError(str(error)) from error
    merges = gpt2_bpe.parse_merges(files.read_text(folder / "vocab.bpe"))
    return GPT2Files(merges, files.read_json(folder / "encoder.json"), symbols)


def write_gpt2_files(folder: Path, bpe: GPT2Files, dictionaries: tuple[str, ...] = ("dict.txt",)) -> None:
    """Write the dictionary under the names that fairseq's tasks look for, and this package's ``tokenizer`` folder."""
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    files.write_json(tokenizer / "config.json", {"kind": "gpt2"})
    # one line, like OpenAI's own file
    (tokenizer / "encoder.json").write_text(json.dumps(bpe.encoder), encoding="utf-8")
    (tokenizer / "vocab.bpe").write_text(gpt2_bpe.format_merges(bpe.merges), encoding="utf-8")
    dictionary = gpt2_bpe.format_dictionary(bpe.symbols)
    for name in (*dictionaries, "tokenizer/dict.txt"):
        (folder / name).write_text(dictionary, encoding="utf-8")
