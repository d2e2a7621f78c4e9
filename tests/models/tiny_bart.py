"""Tiny Poolingformer-BARTs through fairseq's own option parsing, and a data folder for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.models.bart import BARTModel

USER_DIR = str(Path(__file__).parents[2] / "fairseq_poolingformer")
ENCODER = [
    *("--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "48", "--encoder-attention-heads", "4"),
    *("--encoder-layers", "3"),
]
SIZES = [*ENCODER, "--decoder-attention-heads", "4", "--decoder-layers", "2"]
PAD, BOS, EOS = 1, 0, 2
POSITIONS = "--max-source-positions"


def write_dictionaries(folder: Path, num_words: int, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    dictionary = Dictionary()
    for number in range(num_words):
        dictionary.add_symbol(f"w{number}")
    for name in names:
        dictionary.save(str(folder / name))
    return folder


def write_data_folder(
    folder: Path, num_words: int = 30, splits: dict[str, list[tuple[list[int], list[int]]]] | None = None
):
    """A data folder of word indices: dictionaries, and splits of (document, summary) index lists without <s>, </s>."""
    write_dictionaries(folder, num_words, "dict.source.txt", "dict.target.txt")
    for split, examples in (splits or {}).items():
        for side, language in enumerate(("source", "target")):
            prefix = str(folder / f"{split}.source-target.{language}")
            builder = MMapIndexedDatasetBuilder(prefix + ".bin", dtype=np.uint16)
            for example in examples:
                builder.add_item(torch.tensor([*example[side], EOS]))
            builder.finalize(prefix + ".idx")
    return folder


def parse(folder: Path, *flags: str, arch: str = "poolingformer_bart_tiny", task: str = "long_summarization"):
    """The parsed training options."""
    parser = options.get_training_parser()
    arguments = [str(folder), "--user-dir", USER_DIR, "--task", task, "--arch", arch, "--cpu", *flags]
    return options.parse_args_and_arch(parser, arguments)


def build(folder: Path, *flags: str, seed: int = 0, **named: str):
    """``(task, model)``, the model random, in float32 and eval mode."""
    args = parse(folder, *flags, **named)
    task = tasks.setup_task(args)
    torch.manual_seed(seed)
    model = task.build_model(args)
    return task, model.eval()


def encoder_of(model):
    return model.encoder


def pretrained(folder: Path) -> dict[str, torch.Tensor]:
    """The state dict of a BART of fairseq with 20 source and 1,024 target positions."""
    task, _ = build(folder, *SIZES)
    torch.manual_seed(7)
    return BARTModel.build_model(parse(folder, *SIZES, POSITIONS, "20"), task).state_dict()
