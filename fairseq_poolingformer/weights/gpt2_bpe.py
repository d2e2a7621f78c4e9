"""GPT-2 byte-level BPE: Hugging Face's tokenizer files to fairseq's three and back.

Hugging Face's ``vocab.json`` maps a token to its embedding row. fairseq does so in two steps: ``encoder.json`` maps the
token to OpenAI's id, and line k of ``dict.txt`` has the id of embedding row 4 + k. OpenAI's ids need no file: the 256
bytes come first, then one token for each merge in the order of ``vocab.bpe``, then ``<|endoftext|>``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.text.dictionary import MARKS, SPECIAL_SYMBOLS, read_symbols
from fairseq_poolingformer.text.gpt2_bpe import END_OF_TEXT, byte_symbols
from fairseq_poolingformer.text.json_file import read_json_file, read_text_file
from fairseq_poolingformer.text.json_values import placed
from fairseq_poolingformer.text.tokenizer_base import BLANK, GPT2, PLAIN_GPT2, TokenizerConfig
from fairseq_poolingformer.weights import ConversionError, files
from fairseq_poolingformer.weights.family import Family
from fairseq_poolingformer.weights.special_tokens import MASK, appended

if TYPE_CHECKING:
    from tokenizers import AddedToken

FILLER = "madeupword"  # fairseq's name for rows that only round up the size of a dictionary
VERSION = "#version: 0.2"
# of tokenizer.json where tabs and line breaks are read as blanks
NORMALIZER = {"type": "Replace", "pattern": {"Regex": r"[\t\n\x0b\x0c\r]"}, "content": " "}


@dataclass(frozen=True)
class GPT2Files:
    """fairseq's GPT-2 BPE."""

    merges: list[str]  # pairs "a b", the first merged first
    encoder: dict[str, int]  # token -> OpenAI's id
    symbols: list[str]  # dict.txt without the counts: the symbols of embedding rows 4, 5, …
    config: TokenizerConfig = PLAIN_GPT2


def encoder_of(merges: Iterable[str], vocab: Mapping[str, int]) -> dict[str, int]:
    """Return OpenAI's ``encoder.json`` for the merges, with ``<|endoftext|>`` only if the vocabulary has it."""
    tokens = [*byte_symbols(), *(merge.replace(" ", "") for merge in merges)]
    if END_OF_TEXT in vocab:
        tokens.append(END_OF_TEXT)
    encoder = {token: i for i, token in enumerate(tokens)}
    if len(encoder) != len(tokens):
        raise ConversionError("the tokenizer's merges make the same token twice, so it is not GPT-2's BPE")
    return encoder


def to_fairseq_files(vocab: Mapping[str, int], merges: list[str], rows: int) -> GPT2Files:
    """Return the files with which fairseq gives every token the row that ``vocab`` gives it."""
    if vocab.get(MASK) == rows:  # bart-large-cnn: the tokenizer kept <mask>, the model dropped its row
        vocab = {token: row for token, row in vocab.items() if token != MASK}
    token_of = {row: token for token, row in vocab.items()}
    if len(token_of) != len(vocab):
        raise ConversionError("the vocabulary has two tokens with one id: repair vocab.json, or download it again")
    symbols = tuple(token_of.get(row) for row in range(len(SPECIAL_SYMBOLS)))
    if symbols != SPECIAL_SYMBOLS:
        raise ConversionError(f"rows 0-3 are {symbols}; fairseq's dictionary needs {SPECIAL_SYMBOLS} there")
    if max(token_of) >= rows:
        raise ConversionError(f"the vocabulary goes up to id {max(token_of)}, but the embedding has {rows} rows")
    encoder = encoder_of(merges, vocab)
    symbols = []
    for row in range(len(SPECIAL_SYMBOLS), rows):
        token = token_of.get(row, f"{FILLER}{row:06d}")
        symbols.append(str(encoder[token]) if token in encoder else token)
    if tuple(symbols[-len(MARKS) :]) == MARKS:
        del symbols[-len(MARKS) :]
    if symbols and symbols[-1] == MASK:
        symbols.pop()
    odd = sorted(s for s in symbols if not s or any(c.isspace() for c in s))
    if odd or len(set(symbols)) != len(symbols):
        raise ConversionError(f"the vocabulary cannot be written as dict.txt: empty, spaced or repeated tokens {odd}")
    return GPT2Files(merges, encoder, symbols)


def to_huggingface_vocab(files: GPT2Files, rows: int) -> dict[str, int]:
    """Return token -> embedding row; this undoes :func:`to_fairseq_files`."""
    token_of = {str(i): token for token, i in files.encoder.items()}
    tokens = [*SPECIAL_SYMBOLS, *(token_of.get(symbol, symbol) for symbol in files.symbols)]
    missing = rows - len(tokens)
    if MASK not in tokens:
        tokens += appended(missing) or ()
    elif missing == len(MARKS):
        tokens += MARKS
    if len(tokens) != rows:
        raise ConversionError(
            f"dict.txt makes {len(tokens)} symbols with fairseq's own four, but the embedding has {rows} rows: "
            "it is not the dictionary that the checkpoint was trained with. Give that one's folder with --tokenizer"
        )
    vocab = {token: row for row, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise ConversionError("dict.txt and encoder.json give one token two rows")
    return vocab


def check_mask(files: GPT2Files, rows: int) -> None:
    """Check that the embedding has a row for each symbol and for ``<mask>``, as masked language modelling needs."""
    symbols = len(SPECIAL_SYMBOLS) + len(files.symbols) + (MASK not in files.symbols)
    if rows not in (symbols, symbols + len(MARKS)):
        raise ConversionError(f"the tokenizer makes {symbols} symbols with {MASK}, the embedding has {rows} rows")


def parse_merges(text: str) -> list[str]:
    """Return the merges of ``vocab.bpe`` or ``merges.txt``, without the version line."""
    merges = [line for line in re.sub("^#version.*", "", text).split("\n") if line.strip()]
    if wrong := [merge for merge in merges if merge.count(" ") != 1]:
        raise ConversionError(f"not a merge of two tokens: {wrong[0]!r}")
    return merges


def format_merges(merges: Iterable[str]) -> str:
    """Return ``vocab.bpe`` with the version line that fairseq skips."""
    return "\n".join([VERSION, *merges, ""])


def read_huggingface_tokenizer(folder: Path) -> tuple[dict[str, int], list[str]]:
    """Return token -> id, added tokens included, and the merges of a byte-level BPE tokenizer."""
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        vocab = read_json_file(folder / "vocab.json")
        merges = parse_merges(read_text_file(folder / "merges.txt"))
    elif (folder / "tokenizer.json").is_file():
        contents = read_json_file(folder / "tokenizer.json")
        model = contents["model"]
        if model.get("type") != "BPE" or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
            raise ConversionError(
                f"{folder / 'tokenizer.json'} is not a byte-level BPE tokenizer; beside these, only XLM-R's "
                "sentencepiece tokenizer converts"
            )
        pairs = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
        vocab, merges = dict(model["vocab"]), parse_merges("\n".join(pairs))
        vocab.update({token["content"]: token["id"] for token in contents.get("added_tokens", [])})
    else:
        raise ConversionError(
            f"{folder} has neither vocab.json with merges.txt nor tokenizer.json; save the model's tokenizer there"
        )
    if (folder / "added_tokens.json").is_file():
        vocab.update(read_json_file(folder / "added_tokens.json"))
    return vocab, merges


def config_of(folder: Path) -> TokenizerConfig:
    """Return how a Hugging Face tokenizer reads tabs and line breaks; one that changes texts otherwise is refused."""
    path = folder / "tokenizer.json"
    normalizer = read_json_file(path).get("normalizer") if path.is_file() else None
    if normalizer not in (None, NORMALIZER):
        raise ConversionError(f"{path}: fairseq's GPT-2 BPE has no normalizer such as {str(normalizer)[:100]}")
    return PLAIN_GPT2 if normalizer is None else TokenizerConfig(GPT2, BLANK)


def write_huggingface_tokenizer(
    folder: Path, vocab: dict[str, int], tokenizer: GPT2Files, family: Family, max_length: int
) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``."""
    with needing("huggingface"):
        from transformers import DebertaTokenizer, PreTrainedTokenizerFast, RobertaTokenizer
    merges = [tuple(merge.split(" ")) for merge in tokenizer.merges]
    used = {token for left, right in merges for token in (left, right, left + right)}
    if lacking := sorted(used.difference(vocab)):
        raise ConversionError(
            f"dict.txt has no row for {len(lacking)} of the {len(used)} tokens of vocab.bpe, such as {lacking[0]!r}; "
            "transformers' BPE needs one for each: give the dictionary that has them all, with --tokenizer"
        )
    mask = family.special_tokens.get(MASK, MASK)
    ids = {str(i) for i in tokenizer.encoder.values()}
    added = [s for s in tokenizer.symbols if s not in ids and s != MASK and not s.startswith(FILLER)]
    vocab = family.write_vocabulary(vocab)
    # BART's, LED's and Longformer's are RoBERTa's
    kind = DebertaTokenizer if family.model_type == "deberta" else RobertaTokenizer
    fast = kind(
        vocab,
        merges,
        model_max_length=max_length,
        mask_token=mask_token(mask) if mask in vocab else None,
        additional_special_tokens=[*added, *(mark for mark in MARKS if mark in vocab)],
    )
    backend, blank = fast.backend_tokenizer, tokenizer.config.white_space == BLANK
    lacks_bytes = not byte_symbols().keys() <= vocab.keys()
    if lacks_bytes:  # which fairseq reads as <unk>
        backend.model.unk_token = fast.unk_token
    if blank:
        backend = type(backend).from_str(json.dumps({**json.loads(backend.to_str()), "normalizer": NORMALIZER}))
    if lacks_bytes or blank:  # these classes would load neither
        special = {**fast.special_tokens_map, "model_max_length": max_length}
        fast = PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    fast.save_pretrained(folder)


def mask_token(content: str = MASK) -> AddedToken:
    """As published: ``<mask>`` includes the space before it, as the tokens that it replaces do."""
    from tokenizers import AddedToken

    return AddedToken(content, lstrip=True, normalized=False, special=True)


def read_gpt2_files(folder: Path) -> GPT2Files:
    """Return fairseq's GPT-2 BPE from a folder of ``encoder.json``, ``vocab.bpe`` and ``dict.txt``."""
    if missing := [name for name in ("vocab.bpe", "encoder.json", "dict.txt") if not (folder / name).is_file()]:
        raise ConversionError(f"{folder / missing[0]} is missing")
    merges, path, config = parse_merges(read_text_file(folder / "vocab.bpe")), folder / "config.json", PLAIN_GPT2
    if path.is_file() and "kind" in (values := read_json_file(path)):  # others are of models
        with placed(path):
            config = TokenizerConfig.of(values)
    return GPT2Files(merges, read_json_file(folder / "encoder.json"), read_symbols(folder / "dict.txt"), config)


def write_gpt2_files(folder: Path, bpe: GPT2Files, dictionaries: tuple[str, ...] = ("dict.txt",)) -> None:
    """Write the dictionary under the names that fairseq's tasks look for, and this package's ``tokenizer`` folder."""
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    files.write_json(tokenizer / "config.json", bpe.config.values())
    # one line, like OpenAI's own file
    (tokenizer / "encoder.json").write_text(json.dumps(bpe.encoder), encoding="utf-8")
    (tokenizer / "vocab.bpe").write_text(format_merges(bpe.merges), encoding="utf-8")
    dictionary = "".join(f"{symbol} 0\n" for symbol in bpe.symbols)  # without counts, which nobody reads
    for name in (*dictionaries, "tokenizer/dict.txt"):
        (folder / name).write_text(dictionary, encoding="utf-8")
