"""Tiny Poolingformer-RoBERTas through fairseq's own option parsing."""

from __future__ import annotations

from pathlib import Path

import torch
from fairseq import options, tasks
from fairseq.data import Dictionary

from tests.models.tiny_bart import USER_DIR

SIZES = [
    *("--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "48", "--encoder-attention-heads", "4"),
    *("--encoder-layers", "3"),
]
PAD, BOS, EOS = 1, 0, 2


def write_dictionary(folder: Path, num_words: int = 30) -> Path:
    """A folder with ``dict.txt``; the masked_lm task adds ``<mask>``."""
    folder.mkdir(parents=True, exist_ok=True)
    dictionary = Dictionary()
    for number in range(num_words):
        dictionary.add_symbol(f"w{number}")
    dictionary.save(str(folder / "dict.txt"))
    return folder


def parse(folder: Path, *flags: str, arch: str = "poolingformer_roberta_tiny", task: str = "masked_lm"):
    """The parsed training options."""
    parser = options.get_training_parser()
    arguments = [str(folder), "--user-dir", USER_DIR, "--task", task, "--arch", arch, "--cpu", *flags]
    return options.parse_args_and_arch(parser, arguments)


def build(folder: Path, *flags: str, arch: str = "poolingformer_roberta_tiny", seed: int = 0):
    """``(task, model)``, the model random, in float32 and eval mode."""
    args = parse(folder, *flags, arch=arch)
    task = tasks.setup_task(args)
    torch.manual_seed(seed)
    return task, task.build_model(args).eval()


def sentences(lengths: list[int], padded_to: int = 0, seed: int = 1) -> torch.Tensor:
    """(B, T) random ``<s> … </s>`` of words, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.full((len(lengths), max(padded_to, *lengths)), PAD)
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = torch.randint(4, 34, (length,), generator=generator)
        row[0], row[length - 1] = BOS, EOS
    return rows
