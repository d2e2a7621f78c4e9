"""Make a Hugging Face ``tokenizer.json`` of a sentencepiece model, and rebuild the model from it.

``tokenizer.json`` keeps the pieces with their scores and sentencepiece's table of normalizations. A sentencepiece model
is a protocol buffer of the same. It needs few fields, so this module writes them without a library.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS
from fairseq_poolingformer.weights import ConversionError
from fairseq_poolingformer.weights.marks import MASK

# fields and types of sentencepiece_model.proto
PIECES, TRAINER, NORMALIZER = 1, 2, 3
PIECE, SCORE, TYPE = 1, 2, 3
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
BYTE_FALLBACK = 35
UNIGRAM = 1  # of sentencepiece's enumeration of model types
CHARSMAP, DUMMY_PREFIX, REMOVE_SPACES, ESCAPE_SPACES = 2, 3, 4, 5
LANGUAGE = re.compile(r"[a-z]{2,3}_[A-Z]{2}")
BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
SPACE, SPACES = "\u2581", {"Regex": " {2,}"}
FIRST = (("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL))  # the first pieces of every model that XLM-R can use


def is_unigram(tokenizer: Mapping[str, Any]) -> bool:
    """Return whether a ``tokenizer.json``, given its contents, comes from a unigram model of sentencepiece's."""
    return (tokenizer.get("model") or {}).get("type") == "Unigram"


def has_bytes(path: Path) -> bool:
    """Return whether a sentencepiece model writes characters without a piece as bytes."""
    return any(
        number == PIECES and dict(fields(value)).get(TYPE) == BYTE for number, value in fields(path.read_bytes())
    )


def tokenizer_json(path: Path, languages: Sequence[str], mask: bool) -> dict[str, Any]:
    """Return the contents of a ``tokenizer.json`` that gives the ids of fairseq's dictionary."""
    proto = path.read_bytes()
    message = [(number, value) for number, value in fields(proto)]
    normalizer = dict(fields(next((value for number, value in message if number == NORMALIZER), b"")))
    pieces = [dict(fields(value)) for number, value in message if number == PIECES][len(FIRST) :]
    odd = sorted({piece.get(TYPE, NORMAL) for piece in pieces}.difference((NORMAL, BYTE)))
    spaces = [normalizer.get(number, 1) for number in (DUMMY_PREFIX, REMOVE_SPACES, ESCAPE_SPACES)]
    if not has_unigrams(proto) or odd or not all(spaces):
        raise ConversionError(
            f"{path}: only unigram models of plain pieces and bytes, with sentencepiece's default treatment of spaces, "
            "become a tokenizer for transformers"
        )
    vocab = [[piece[PIECE].decode(), struct.unpack("<f", piece.get(SCORE, bytes(4)))[0]] for piece in pieces]
    bos, _, eos, _ = SPECIAL_SYMBOLS
    ends = [{"SpecialToken": {"id": token, "type_id": 0}} for token in (bos, eos)]
    added = {token: row for row, token in enumerate(SPECIAL_SYMBOLS)}
    last = [*languages, *[MASK] * mask]
    added |= {token: row for row, token in enumerate(last, len(SPECIAL_SYMBOLS) + len(vocab))}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    table = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(normalizer.get(CHARSMAP, b"")).decode()}
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": row, "content": token, **plain, "lstrip": token == MASK} for token, row in added.items()
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                *([table] if normalizer.get(CHARSMAP) else []),
                {"type": "Replace", "pattern": SPACES, "content": " "},
                strip,
            ],
        },
        "pre_tokenizer": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [ends[0], {"Sequence": {"id": "A", "type_id": 0}}, ends[1]],
            "pair": [
                *(ends[0], {"Sequence": {"id": "A", "type_id": 0}}, ends[1]),
                *(ends[1], {"Sequence": {"id": "B", "type_id": 0}}, ends[1]),
            ],
            "special_tokens": {token: {"id": token, "ids": [added[token]], "tokens": [token]} for token in (bos, eos)},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                *({"type": kind} for kind in ("ByteFallback", "Fuse")),
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "Unigram",
            "unk_id": added["<unk>"],
            "vocab": [*([token, 0.0] for token in SPECIAL_SYMBOLS), *vocab],
            "byte_fallback": any(piece.get(TYPE) == BYTE for piece in pieces),
        },
    }


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
    fields_of_pieces = [_message(PIECES, _piece(piece, 0.0, kind)) for piece, kind in FIRST]
    for piece, score in pieces:
        kind = BYTE if bytes_too and BYTE_PIECE.fullmatch(piece) else NORMAL
        fields_of_pieces.append(_message(PIECES, _piece(piece, score, kind)))
    trainer = _message(TRAINER, _varint(BYTE_FALLBACK << 3) + _varint(1)) if bytes_too else b""
    normalizer = _message(NORMALIZER, _message(CHARSMAP, _charsmap(path, tokenizer.get("normalizer"))))
    return b"".join([*fields_of_pieces, trainer, normalizer])


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


def _piece(text: str, score: float, kind: int) -> bytes:
    score_field = _varint(SCORE << 3 | 5) + struct.pack("<f", score)
    return _message(PIECE, text.encode()) + score_field + _varint(TYPE << 3) + _varint(kind)


def _message(field: int, content: bytes) -> bytes:
    """Return a field of bytes: its number and wire type 2, the length, the content."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first, each but the last with its high bit set."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def has_unigrams(proto: bytes) -> bool:
    """Whether a serialized sentencepiece model is a unigram model; protobuf is not needed to tell."""
    trainer = next((value for number, value in fields(proto) if number == 2 and isinstance(value, bytes)), b"")
    return next((value for number, value in fields(trainer) if number == 3), UNIGRAM) == UNIGRAM


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: numbers and values."""
    position = 0

    def varint() -> int:
        nonlocal position
        value, shift = 0, 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            yield number, message[position : position + size]
            position += size
