"""Rebuild the sentencepiece model from which a Hugging Face ``tokenizer.json`` was made.

``tokenizer.json`` keeps XLM-R's pieces with their scores and sentencepiece's table of normalizations. A sentencepiece
model is a protocol buffer of the same. It needs few fields, so this module writes them without a library.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_poolingformer.models.conversion.family import ConversionError
from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS

MASK = "<mask>"
# fields and types of sentencepiece_model.proto
PIECES, NORMALIZER = 1, 3
PIECE, SCORE, TYPE = 1, 2, 3
NORMAL, UNKNOWN, CONTROL = 1, 2, 3
CHARSMAP = 2
FIRST = (("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL))  # the first pieces of every model that XLM-R can use


def is_unigram(tokenizer: Mapping[str, Any]) -> bool:
    """Return whether a ``tokenizer.json``, given its contents, comes from a unigram model of sentencepiece's."""
    return (tokenizer.get("model") or {}).get("type") == "Unigram"


def sentencepiece_model(path: Path, tokenizer: Mapping[str, Any]) -> bytes:
    """Return the sentencepiece model of a ``tokenizer.json``.

    Args:
        path: the file, for messages.
        tokenizer: its contents.

    Raises:
        ConversionError: the tokenizer differs from XLM-R's, or its first pieces are not ``<s> <pad> </s> <unk>``.
    """
    model = tokenizer["model"]
    pieces = [(piece, score) for piece, score in model["vocab"]]
    first = tuple(piece for piece, _ in pieces[: len(SPECIAL_SYMBOLS)])
    if first != SPECIAL_SYMBOLS or model.get("byte_fallback"):
        raise ConversionError(
            f"{path}: its first pieces are {first}, byte_fallback is {model.get('byte_fallback', False)}; XLM-R's "
            f"begin with {SPECIAL_SYMBOLS} and have no bytes. Put the model's own sentencepiece.bpe.model into the "
            "folder"
        )
    pieces = pieces[len(SPECIAL_SYMBOLS) :]
    if pieces and pieces[-1][0] == MASK:
        pieces.pop()
    proto = b"".join(_message(PIECES, _piece(piece, 0.0, kind)) for piece, kind in FIRST)
    proto += b"".join(_message(PIECES, _piece(piece, score, NORMAL)) for piece, score in pieces)
    return proto + _message(NORMALIZER, _message(CHARSMAP, _charsmap(path, tokenizer.get("normalizer"))))


def _charsmap(path: Path, normalizer: Mapping[str, Any] | None) -> bytes:
    """Return the table of normalizations, from the normalizer or from one step of its sequence."""
    steps = (normalizer or {}).get("normalizers") or [normalizer]
    tables = [step["precompiled_charsmap"] for step in steps if step and step.get("type") == "Precompiled"]
    # "Replace" shortens runs of spaces; sentencepiece does that itself
    if len(tables) != 1 or any(step["type"] not in ("Precompiled", "Replace") for step in steps):
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
