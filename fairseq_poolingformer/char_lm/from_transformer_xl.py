"""Convert character models of the published Transformer-XL to ``transformer_xl_lm``.

The published code (kimiyoung/transformer-xl, pytorch/) saves a whole module, ``model.pt``, whose classes only that code
can build; this reads its state dict. Symbols are numbered by how often they occur in the whole text, which the
converter counts in the data folder of the same text. Newlines, which the published code leaves out of enwik8, are no
symbols.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairseq_poolingformer.char_lm import published
from fairseq_poolingformer.text.byte_symbols import NEWLINE, NUM_SYMBOLS
from fairseq_poolingformer.text.data_folder import BYTES, DataFolder
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.weights import ConversionError, Settings, State

MODEL = "character model of Transformer-XL with --attn_type 0"
SAVING = (
    "in its pytorch/ run python -c \"import torch; m = torch.load('model.pt', 'cpu', weights_only=False); "
    "torch.save(m.state_dict(), 'state.pt')\" and give state.pt; that runs whatever model.pt asks for, so do it with "
    "files that you trust only"
)
_BLOCK = 2**22
_LAYER_NAMES = {
    "dec_attn.o_net.weight": "attention.out_proj.weight",
    "dec_attn.r_net.weight": "positions.r_proj.weight",
    "dec_attn.layer_norm.weight": "attention_norm.weight",
    "dec_attn.layer_norm.bias": "attention_norm.bias",
    "pos_ff.CoreNet.0.weight": "feed_forward.fc1.weight",
    "pos_ff.CoreNet.0.bias": "feed_forward.fc1.bias",
    "pos_ff.CoreNet.3.weight": "feed_forward.fc2.weight",
    "pos_ff.CoreNet.3.bias": "feed_forward.fc2.bias",
    "pos_ff.layer_norm.weight": "feed_forward_norm.weight",
    "pos_ff.layer_norm.bias": "feed_forward_norm.bias",
}


def add_command(commands: Any) -> None:
    """Add ``from-transformer-xl`` to the subcommands of ``poolingformer-convert``."""
    summary = "state dict of the published Transformer-XL -> fairseq's"
    file = {"source": "of a model of enwik8 or text8: state.pt", "metavar": "STATE_DICT"}
    parser = published.add_command(commands, "from-transformer-xl", run, summary, **file)
    parser.add_argument(
        "--memory-length", type=int, default=512, metavar="M", help="--mem_len of the training (default: 512)"
    )


def run(options: argparse.Namespace) -> None:
    """Convert a state dict to ``model.pt``, and print the command that evaluates it."""
    try:
        state = published.read(options.source, f"is not a state dict: {SAVING}")
    except ConversionError as error:
        if "mem_transformer" in str(error):
            raise ConversionError(
                f"{options.source} is a whole module, which only Transformer-XL's code can read: {SAVING}"
            ) from None
        raise
    order, newlines = symbol_order(options.data)
    settings, converted = to_fairseq(state, order, memory_length=options.memory_length)
    memory, clamp = (3800, 1000) if settings["decoder_layers"] > 12 else (2100, 820)
    flags = f"--memory-length {memory} --same-length --clamp-distances {clamp}{' --skip-newlines' * newlines}"
    published.write(options, settings, converted, flags)


def symbol_order(data: Path) -> tuple[list[int], bool]:
    """Return dictionary indices in the order in which the published code numbers them, and whether there are newlines.

    It counts the bytes of all splits, without newlines, and numbers the most frequent first; of two that are equally
    frequent the one that occurs first.

    Raises:
        FileNotFoundError: ``data`` is not a finished data folder.
    """
    folder = DataFolder(data, BYTES)
    counts, firsts, before = np.zeros(NUM_SYMBOLS, np.int64), np.full(NUM_SYMBOLS, np.iinfo(np.int64).max), 0
    for split in ("train", "valid", "test"):
        values = Sequences(folder.array(split)).values
        for first in range(0, len(values), _BLOCK):
            symbols, places, numbers = np.unique(values[first : first + _BLOCK], return_index=True, return_counts=True)
            counts[symbols] += numbers
            firsts[symbols] = np.minimum(firsts[symbols], before + first + places)
        before += len(values)
    order = [int(symbol) for symbol in np.lexsort((firsts, -counts)) if counts[symbol] and symbol != NEWLINE]
    return order, bool(counts[NEWLINE])


def to_fairseq(state: State, order: list[int], *, memory_length: int = 512) -> tuple[Settings, State]:
    """Convert the parameters of a published model.

    Args:
        state: name -> parameter.
        order: dictionary index of each of its symbols.
        memory_length: M, which the state dict does not say.

    Returns:
        The settings of the fairseq model, and its parameters.

    Raises:
        ConversionError: the model has other parts than those of its published character models, or another number of
            symbols than ``order``.
    """
    rest = {name: value.float() if value.dtype == torch.float16 else value for name, value in state.items()}
    rest.pop("pos_emb.inv_freq", None)
    if any("emb_projs" in name or "out_projs" in name or re.search(r"_layers\.[1-9]", name) for name in rest):
        raise ConversionError(
            "the model has adaptive embeddings: a word model, such as wt103's; transformer_xl_lm reads bytes"
        )
    names = ("word_emb.emb_layers.0.weight", "crit.out_layers.0.weight", "crit.out_layers.0.bias")
    embedding, output, bias = (published.taken(rest, name, MODEL) for name in names)
    content, position = (published.taken(rest, name, MODEL) for name in ("r_w_bias", "r_r_bias"))
    complaint = (
        f"the data folder has {len(order)} beside newlines: give the folder of the text that the model was trained on"
    )
    # the first byte follows the most frequent symbol: the published evaluation does not predict it
    converted = published.embeddings(embedding, output, bias, order, 0, complaint)
    shared = torch.equal(embedding, output)
    if shared:
        converted["decoder.output_projection.weight"] = converted["decoder.embed_tokens.weight"]
    layers, renamed = published.renamed_layers(rest, _LAYER_NAMES, MODEL)
    converted |= renamed
    for layer in range(layers):
        ours, joint = f"decoder.layers.{layer}.", f"layers.{layer}.dec_attn.qkv_net.weight"
        for letter, part in zip("qkv", published.taken(rest, joint, MODEL).chunk(3), strict=True):
            converted[f"{ours}attention.{letter}_proj.weight"] = part.clone()
        converted |= {f"{ours}positions.content_bias": content, f"{ours}positions.position_bias": position}
    if rest:
        raise ConversionError(f"transformer_xl_lm has no place for {', '.join(sorted(rest))}")
    heads, width = len(content), embedding.size(1)
    if content.numel() != width:
        raise ConversionError(f"the heads' {heads} × {content.size(1)} numbers are not the model's width, {width}")
    settings = published.settings_of(
        "transformer_xl_lm",
        layers,
        heads,
        converted,
        tokens_per_sample=memory_length,  # as in its scripts
        eval_context=2 * memory_length,
        memory_length=memory_length,
        share_decoder_input_output_embed=shared,
    )
    return settings, converted
