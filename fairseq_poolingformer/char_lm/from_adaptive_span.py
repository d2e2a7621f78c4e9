"""Convert checkpoints of the published adaptive span (facebookresearch/adaptive-span) to ``adaptive_span_lm``.

The published code numbers symbols in the order in which they first occur in ``train.txt``, and does not store that
order. The converter reads it from the same text: the data folder of enwik8 or text8.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_poolingformer.char_lm import published
from fairseq_poolingformer.text.byte_symbols import NEWLINE, SPACE
from fairseq_poolingformer.text.data_folder import BYTES, DataFolder
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.weights import ConversionError, Settings, State

MODEL = "model of adaptive-span with --adapt-span"
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


def add_command(commands: Any) -> None:
    """Add ``from-adaptive-span`` to the subcommands of ``poolingformer-convert``."""
    summary = "checkpoint of the published adaptive span -> fairseq's"
    file = {"source": "a .pt file, such as enwik8.pt", "metavar": "CHECKPOINT"}
    parser = published.add_command(commands, "from-adaptive-span", run, summary, **file)
    parser.add_argument(
        "--span-ramp", type=int, default=32, metavar="R", help="--adapt-span-ramp of the training (default: 32)"
    )


def run(options: argparse.Namespace) -> None:
    """Convert a checkpoint to ``model.pt``, and print the command that evaluates it."""
    complaint = 'is not a checkpoint of adaptive-span\'s main.py: it has no parameters under "model"'
    state = published.read(options.source, complaint, "model")
    settings, converted = to_fairseq(state, symbol_order(options.data), span_ramp=options.span_ramp)
    published.write(options, settings, converted)


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
    rest = {name: value for name, value in state.items() if not name.endswith("mask_template")}
    try:
        embedding, output, bias = (rest.pop(name) for name in ("in_emb.weight", "out_emb.weight", "out_emb.bias"))
        positions = rest.pop("key_pe")  # (1, D, S), from the farthest distance to distance 1
    except KeyError as error:
        raise ConversionError(
            f"no parameter {error}: not a character model of adaptive-span (its word models have adaptive inputs)"
        ) from None
    complaint = (
        f"train of the data folder has {len(order)}: give the folder of the text that the model was trained on, made "
        "with the default splits"
    )
    first = order.index(NEWLINE)  # a text begins like a line
    converted = published.embeddings(embedding, output, bias, order, first, complaint)
    converted["decoder.positions.weight"] = positions[0].t().flip(0).contiguous()
    layers, renamed = published.renamed_layers(rest, _LAYER_NAMES, MODEL)
    converted |= renamed
    for layer in range(layers):
        converted[f"decoder.spans.z.{layer}"] = published.taken(rest, f"layers.{layer}.{_SPAN}", MODEL).flatten()
    if rest:
        what = "persistent memory" if any("persistent_memory" in name for name in rest) else ", ".join(sorted(rest))
        raise ConversionError(f"adaptive_span_lm has no place for {what}")
    _, width, span = positions.shape
    settings = published.settings_of(
        "adaptive_span_lm",
        layers,
        embedding.size(1) // width,
        converted,
        tokens_per_sample=512,  # --block-sz of its scripts
        eval_context=span,
        max_span=span,
        span_ramp=span_ramp,
    )
    return settings, converted
