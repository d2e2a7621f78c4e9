"""Tiny Poolingformer-RoBERTas through fairseq's own option parsing."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from fairseq.data import Dictionary

from tests.models import tiny_bart

PAD, BOS, EOS = 1, 0, 2
SIZES = tiny_bart.ENCODER
parse = partial(tiny_bart.parse, arch="poolingformer_roberta_tiny", task="masked_lm")
build = partial(tiny_bart.build, arch="poolingformer_roberta_tiny", task="masked_lm")


def write_dictionary(folder: Path, num_words: int = 30) -> Path:
    """A folder with ``dict.txt``; the masked_lm task adds ``<mask>``."""
    folder.mkdir(parents=True, exist_ok=True)
    dictionary = Dictionary()
    for number in range(num_words):
        dictionary.add_symbol(f"w{number}")
    dictionary.save(str(folder / "dict.txt"))
    return folder


def sentences(lengths: list[int], padded_to: int = 0, seed: int = 1) -> torch.Tensor:
    """(B, T) random ``<s> … </s>`` of words, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.full((len(lengths), max(padded_to, *lengths)), PAD)
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = torch.randint(4, 34, (length,), generator=generator)
        row[0], row[length - 1] = BOS, EOS
    return rows
