"""XLM-R's and mBART's tokenizer: both sides use one sentencepiece model, its pieces after four special symbols.

Piece k has row k + 1 from k = 3 on, as the model's first three are ``<unk>``, ``<s>`` and ``</s>``; ``<mask>`` is last.
mBART has its languages before ``<mask>``: ``en_XX`` in Hugging Face's tokenizer, ``[en_XX]`` in fairseq's dictionary.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.text.dictionary import BOS, EOS, MARKS, SPECIAL_SYMBOLS, UNK
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.tokenizers import SPACE, SentencePieceTokenizer
from fairseq_poolingformer.weights import ConversionError
from fairseq_poolingformer.weights.gpt2_bpe import mask_token
from fairseq_poolingformer.weights.special_tokens import MASK, appended

NAMES = ("sentencepiece.bpe.model", *SentencePieceTokenizer.files)  # Hugging Face's and ours
LANGUAGES = (  # of mBART's first release, in the order of their rows
    *("ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT", "ja_XX"),
    *("kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN"),
    "zh_CN",
)
OWN_PIECES = 3  # <unk>, <s>, </s>: the first of every model that Hugging Face's XLM-R can use


def find(folder: Path) -> Path | None:
    """Return the sentencepiece model of a Hugging Face folder, or of a ``tokenizer`` folder; None without one."""
    return next((folder / name for name in NAMES if (folder / name).is_file()), None)


def rebuild(source: Path, folder: Path) -> Path | None:
    """Rebuild the sentencepiece model of a Hugging Face folder that has only ``tokenizer.json``."""
    path = source / "tokenizer.json"
    tokenizer = read_json_file(path) if path.is_file() else {}
    if (tokenizer.get("model") or {}).get("type") != "Unigram":
        return None
    model = folder / "tokenizer" / SentencePieceTokenizer.files[0]
    model.parent.mkdir()
    model.write_bytes(sentencepiece_model(path, tokenizer))
    return model


def languages_of(source: Path, model: Path, rows: int) -> Sequence[str]:
    """Return the languages of a Hugging Face folder of mBART's, in the order of their rows."""
    first = len(SentencePieceTokenizer(model))
    count = rows - 1 - first
    if count <= 0:
        return ()
    if count == len(LANGUAGES):
        return LANGUAGES
    path = source / "tokenizer.json"
    contents = read_json_file(path) if path.is_file() else {}
    named = {token["id"]: token["content"] for token in contents.get("added_tokens", [])}
    languages = [named.get(row, "") for row in range(first, rows - 1)]
    if not all(map(LANGUAGE.fullmatch, languages)):
        raise ConversionError(
            f"{source} has {count} rows between the pieces of {model.name} and {MASK}, and no tokenizer.json that "
            "names their languages: save the model's tokenizer with transformers into this folder"
        )
    return languages


def write_fairseq(
    folder: Path, model: Path, rows: int, dictionaries: tuple[str, ...], languages: Sequence[str] = ()
) -> None:
    """Write the dictionary under the names that fairseq's tasks look for, and this package's ``tokenizer`` folder."""
    tokenizer = _read(model, rows, languages)
    tokenizer.save(folder)
    for name in dictionaries:
        tokenizer.write_dictionary(folder / name)
        with (folder / name).open("a", encoding="utf-8") as file:
            file.writelines(f"[{language}] 1\n" for language in languages)


def write_huggingface(folder: Path, model: Path, rows: int, max_length: int, languages: Sequence[str] = ()) -> None:
    """Write ``tokenizer.json``, which gives the ids of fairseq's dictionary, its config, and the model beside them."""
    with needing("huggingface"):
        from transformers import PreTrainedTokenizerFast
    from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
    from tokenizers.models import Unigram

    last = rows - len(_read(model, rows, languages)) - len(languages)  # <mask>, and the tasks' special tokens
    proto = ModelProto.FromString(model.read_bytes())
    normalizer, pieces = proto.normalizer_spec, proto.pieces[OWN_PIECES:]
    spaces = (normalizer.add_dummy_prefix, normalizer.remove_extra_whitespaces, normalizer.escape_whitespaces)
    is_unigram, kinds = proto.trainer_spec.model_type == TrainerSpec.UNIGRAM, {piece.type for piece in pieces}
    if not is_unigram or kinds - {PLAIN, BYTE} or not all(spaces):
        raise ConversionError(
            f"{model}: only unigram models of plain pieces and bytes, with sentencepiece's default treatment of "
            "spaces, become a tokenizer for transformers"
        )
    bos, pad, eos, unk = SPECIAL_SYMBOLS
    vocab = [*((symbol, 0.0) for symbol in SPECIAL_SYMBOLS), *((piece.piece, piece.score) for piece in pieces)]
    tokenizer = Tokenizer(Unigram(vocab, UNK, BYTE in kinds))  # XLM-R's class in transformers has no bytes
    charsmap = normalizer.precompiled_charsmap
    table = [normalizers.Precompiled(charsmap)] if charsmap else []
    tokenizer.normalizer = normalizers.Sequence([*table, normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always")
    tokenizer.post_processor = processors.RobertaProcessing((eos, EOS), (bos, BOS), trim_offsets=False)
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens(list(languages))  # before <mask>
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        **{"bos_token": bos, "cls_token": bos, "pad_token": pad, "eos_token": eos, "sep_token": eos, "unk_token": unk},
        mask_token=mask_token() if last else None,
        additional_special_tokens=list(MARKS) if last > 1 else [],
    ).save_pretrained(folder)
    (folder / SentencePieceTokenizer.files[0]).write_bytes(model.read_bytes())


def _read(model: Path, rows: int, languages: Sequence[str]) -> SentencePieceTokenizer:
    tokenizer = SentencePieceTokenizer(model)
    processor = SentencePieceProcessor(model_file=str(model))
    first = [processor.id_to_piece(piece) for piece in range(min(OWN_PIECES, len(processor)))]
    named = processor.is_unknown(0) and all(processor.is_control(piece) for piece in range(1, len(first)))
    ordinary = len(tokenizer) - len(SPECIAL_SYMBOLS)
    if not named or ordinary != len(processor) - OWN_PIECES:
        raise ConversionError(
            f"{model}: its first pieces are {first}, and {len(processor) - ordinary} pieces are not text; Hugging "
            "Face's XLM-R needs <unk>, <s> and </s> first and no others of that kind, or it gives the pieces other rows"
        )
    if appended(rows - len(tokenizer) - len(languages)) is None:  # models that only write have no row for <mask>
        raise ConversionError(
            f"{model} has {ordinary} pieces, which make {len(tokenizer) + len(languages) + 1} rows with the four "
            f"special symbols, {len(languages)} languages and {MASK}, but the embedding has {rows} rows: it is not the "
            "tokenizer that the model was trained with"
        )
    return tokenizer


LANGUAGE = re.compile(r"[a-z]{2,3}_[A-Z]{2}")
BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
PLAIN, BYTE = ModelProto.SentencePiece.NORMAL, ModelProto.SentencePiece.BYTE  # types of pieces


def sentencepiece_model(path: Path, tokenizer: Mapping[str, Any]) -> bytes:
    """Return the sentencepiece model of a ``tokenizer.json``."""
    model = tokenizer["model"]
    pieces = [(piece, score) for piece, score in model["vocab"]]
    first = tuple(piece for piece, _ in pieces[: len(SPECIAL_SYMBOLS)])
    if first != SPECIAL_SYMBOLS:
        raise ConversionError(
            f"{path}: its first pieces are {first}; XLM-R's begin with {SPECIAL_SYMBOLS}. Put the model's own "
            "sentencepiece.bpe.model into the folder"
        )
    pieces = pieces[len(SPECIAL_SYMBOLS) :]
    if pieces and pieces[-1][0] == MASK:
        pieces.pop()
    while pieces and LANGUAGE.fullmatch(pieces[-1][0]):  # mBART's, which its sentencepiece model lacks
        pieces.pop()
    bytes_too = bool(model.get("byte_fallback"))
    proto = ModelProto()
    for piece, kind in zip(("<unk>", "<s>", "</s>"), ("UNKNOWN", "CONTROL", "CONTROL"), strict=True):
        proto.pieces.add(piece=piece, score=0.0, type=kind)
    for piece, score in pieces:
        proto.pieces.add(piece=piece, score=score, type=BYTE if bytes_too and BYTE_PIECE.fullmatch(piece) else PLAIN)
    proto.trainer_spec.byte_fallback = bytes_too
    proto.normalizer_spec.precompiled_charsmap = _charsmap(path, tokenizer.get("normalizer"))
    return proto.SerializeToString()


def _charsmap(path: Path, normalizer: Mapping[str, Any] | None) -> bytes:
    """Return the table of normalizations, from the normalizer or from one step of its sequence."""
    steps = (normalizer or {}).get("normalizers") or [normalizer]
    tables = [step["precompiled_charsmap"] for step in steps if step and step.get("type") == "Precompiled"]
    # "Replace" shortens runs of spaces, "Strip" removes those at the ends; sentencepiece does that itself
    if len(tables) != 1 or any(step["type"] not in ("Precompiled", "Replace", "Strip") for step in steps):
        raise ConversionError(
            f"{path}: its normalizer is not sentencepiece's table alone. Put the model's own sentencepiece.bpe.model "
            "into the folder"
        )
    try:
        return base64.b64decode(tables[0], validate=True)
    except binascii.Error as error:
        raise ConversionError(f"{path}: precompiled_charsmap is no base64 ({error})") from error
