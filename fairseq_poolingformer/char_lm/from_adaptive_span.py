"""Convert checkpoints of the published adaptive span (facebookresearch/adaptive-span) to ``adaptive_span_lm``.

The published code numbers symbols in the order in which they first occur in ``train.txt``, and does not store that
order. The converter reads it from the same text: the data folder of enwik8 or text8.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_poolingformer.checkpoint_reader import checkpoints as checkpoint_files
from fairseq_poolingformer.text.byte_symbols import NEWLINE, NUM_SYMBOLS, SPACE
from fairseq_poolingformer.text.data_folder import BYTES, DataFolder
from fairseq_poolingformer.text.dictionary import EOS
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.weights import ConversionError, Settings, State, files

NEVER = -1e4  # bias of symbols that the published model lacks: probability 0, in float16 too
_BLOCK = 2**20
_LAYER_NAMES = {
    "attn.proj_query.weight": "attention.q_proj.weight",
    "attn.proj_key.weight": "attention.k_proj.weight",
    "attn.proj_val.weight": "attention.v_proj.weight",
    "attn.proj_out.weight": "attention.out_proj.weight",
    "norm1.weight": "attention_norm.weight",
    "norm1.bias": "attention_norm.bias",
    "ff.fc1.weight": "feed_forward.fc1.weight",
    "ff.fc1.bias": "feed_forward.fc1.bias",
    "ff.fc2.weight": "feed_forward.fc2.weight",
    "ff.fc2.bias": "feed_forward.fc2.bias",
    "norm2.weight": "feed_forward_norm.weight",
    "norm2.bias": "feed_forward_norm.bias",
}
_SPAN = "attn.attn.adaptive_span._mask.current_val"


def add_command(commands: Any) -> argparse.ArgumentParser:
    """Add ``from-adaptive-span`` to the subcommands of ``poolingformer-convert``, and return its parser."""
    parser = commands.add_parser("from-adaptive-span", help="checkpoint of the published adaptive span -> fairseq's")
    parser.add_argument("source", type=Path, metavar="CHECKPOINT", help="a .pt file, such as enwik8.pt")
    parser.add_argument(
        "data",
        type=Path,
        metavar="DATA_FOLDER",
        help="data folder of the text that the model was trained on, which numbers the symbols",
    )
    parser.add_argument("output", type=Path, metavar="OUTPUT_FOLDER", help="new folder to write model.pt into")
    parser.add_argument(
        "--span-ramp", type=int, default=32, metavar="R", help="--adapt-span-ramp of the training (default: 32)"
    )
    return parser


def run(options: argparse.Namespace) -> None:
    """Convert a checkpoint to ``model.pt``, and print the command that evaluates it."""
    state = read_checkpoint(options.source)
    settings, converted = to_fairseq(state, symbol_order(options.data), span_ramp=options.span_ramp)
    settings["data"] = str(options.data)
    with files.new_folder(options.output) as folder:
        files.write_checkpoint(folder / "model.pt", settings, converted)
    print(f"wrote {options.output}: model.pt")
    print(f"evaluate it: poolingformer-eval-lm {options.data} --path {options.output / 'model.pt'} --batch-size 8")


def read_checkpoint(path: Path) -> State:
    """Return the parameters of a published checkpoint, without the prefix that data parallelism gives them.

    Raises:
        ConversionError: the file is missing or damaged, or is not such a checkpoint.
    """
    with files.conversion_errors(path):
        checkpoint = checkpoint_files.read(path)
    state = checkpoint.get("model") if isinstance(checkpoint, dict) else None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ConversionError(
            f'{path} is not a checkpoint of adaptive-span\'s main.py: it has no parameters under "model"'
        )
    return {name.removeprefix("module."): value for name, value in state.items()}


def symbol_order(data: Path) -> list[int]:
    """Return dictionary indices in the order in which the published code numbers them.

    It numbers the bytes of ``train`` as they first occur, newlines included. It adds a newline to the end of text8,
    which has none, and drops the spaces at the beginning.

    Raises:
        FileNotFoundError: ``data`` is not a finished data folder.
    """
    values = Sequences(DataFolder(data, BYTES).array("train")).values
    order: list[int] = []
    for first in range(0, len(values), _BLOCK):
        symbols, places = np.unique(values[first : first + _BLOCK], return_index=True)
        found = symbols[np.argsort(places)].tolist()
        order += [symbol for symbol in found if symbol not in order]
    if NEWLINE in order:
        return order
    if values[0] == SPACE:  # the order without the leading spaces: the space comes after the first word
        start = int(np.argmax(values[:_BLOCK] != SPACE))
        symbols, places = np.unique(values[start : start + _BLOCK], return_index=True)
        order = symbols[np.argsort(places)].tolist() + [x for x in order if x not in symbols]
    return [*order, NEWLINE]


def to_fairseq(state: State, order: list[int], *, span_ramp: int = 32) -> tuple[Settings, State]:
    """Convert the parameters of a published model.

    Args:
        state: name -> parameter.
        order: dictionary index of each of its symbols.
        span_ramp: R, which the checkpoint does not store.

    Returns:
        The settings of the fairseq model, and its parameters.

    Raises:
        ConversionError: the model has other parts than adaptive span's, or another number of symbols than ``order``.
    """
    from fairseq_poolingformer.char_lm.models import ARCHITECTURES, DEFAULTS

    rest = {name: value for name, value in state.items() if not name.endswith("mask_template")}
    try:
        embedding, output, bias = (rest.pop(name) for name in ("in_emb.weight", "out_emb.weight", "out_emb.bias"))
        positions = rest.pop("key_pe")  # (1, D, S), from the farthest distance to distance 1
    except KeyError as error:
        raise ConversionError(
            f"no parameter {error}: not a character model of adaptive-span (its word models have adaptive inputs)"
        ) from None
    if len(embedding) != len(order):
        raise ConversionError(
            f"the model has {len(embedding)} symbols, but train of the data folder has {len(order)}: give the folder "
            "of the text that the model was trained on, made with the default splits"
        )
    layers = 1 + max((int(name.split(".")[1]) for name in rest if re.match(r"layers\.\d+\.", name)), default=-1)
    converted: State = {
        "decoder.embed_tokens.weight": rows_of_bytes(embedding, order, 0.0),
        "decoder.output_projection.weight": rows_of_bytes(output, order, 0.0),
        "decoder.output_projection.bias": rows_of_bytes(bias, order, NEVER),
        "decoder.positions.weight": positions[0].t().flip(0).contiguous(),
    }
    converted["decoder.embed_tokens.weight"][EOS] = embedding[order.index(NEWLINE)]  # a text begins like a line
    for layer in range(layers):
        for theirs, ours in _LAYER_NAMES.items():
            converted[f"decoder.layers.{layer}.{ours}"] = _take(rest, f"layers.{layer}.{theirs}")
        converted[f"decoder.spans.z.{layer}"] = _take(rest, f"layers.{layer}.{_SPAN}").flatten()
    if rest:
        what = "persistent memory" if any("persistent_memory" in name for name in rest) else ", ".join(sorted(rest))
        raise ConversionError(f"adaptive_span_lm has no place for {what}")
    settings = {
        **DEFAULTS,
        **ARCHITECTURES["adaptive_span_lm"],
        "arch": "adaptive_span_lm",
        "task": "char_lm",
        "criterion": "char_lm",
        "tokens_per_sample": 512,  # --block-sz of its scripts
        "eval_context": positions.size(2),
        "decoder_layers": layers,
        "decoder_embed_dim": embedding.size(1),
        "decoder_ffn_embed_dim": len(converted["decoder.layers.0.feed_forward.fc1.weight"]),
        "decoder_attention_heads": embedding.size(1) // positions.size(1),
        "max_span": positions.size(2),
        "span_ramp": span_ramp,
    }
    return settings, converted


def _take(state: State, name: str) -> Tensor:
    if name not in state:
        raise ConversionError(f"no parameter {name}: not a model of adaptive-span with --adapt-span")
    return state.pop(name)


def rows_of_bytes(values: Tensor, order: list[int], other: float) -> Tensor:
    """Return a row for each symbol of the dictionary of bytes, ``other`` for symbols that the model lacks."""
    rows = values.new_full((NUM_SYMBOLS, *values.shape[1:]), other)
    rows[torch.tensor(order)] = values
    return rows
