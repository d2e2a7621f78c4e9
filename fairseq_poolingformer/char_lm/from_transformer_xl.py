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
from torch import Tensor

from fairseq_poolingformer.char_lm.from_adaptive_span import NEVER, rows_of_bytes
from fairseq_poolingformer.checkpoint_reader import checkpoints as checkpoint_files
from fairseq_poolingformer.text.byte_symbols import NEWLINE, NUM_SYMBOLS
from fairseq_poolingformer.text.data_folder import BYTES, DataFolder
from fairseq_poolingformer.text.dictionary import EOS
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.weights import ConversionError, Settings, State, files

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
    parser = commands.add_parser("from-transformer-xl", help="state dict of the published Transformer-XL -> fairseq's")
    parser.set_defaults(convert=run)
    parser.add_argument("source", type=Path, metavar="STATE_DICT", help="of a model of enwik8 or text8: state.pt")
    parser.add_argument(
        "data",
        type=Path,
        metavar="DATA_FOLDER",
        help="data folder of the text that the model was trained on, which numbers the symbols",
    )
    parser.add_argument("output", type=Path, metavar="OUTPUT_FOLDER", help="new folder to write model.pt into")
    parser.add_argument(
        "--memory-length", type=int, default=512, metavar="M", help="--mem_len of the training (default: 512)"
    )


def run(options: argparse.Namespace) -> None:
    """Convert a state dict to ``model.pt``, and print the command that evaluates it."""
    state = read_state(options.source)
    order, newlines = symbol_order(options.data)
    settings, converted = to_fairseq(state, order, memory_length=options.memory_length)
    settings["data"] = str(options.data)
    with files.new_folder(options.output) as folder:
        files.write_checkpoint(folder / "model.pt", settings, converted)
    large = settings["decoder_layers"] > 12
    published = f"--memory-length {3800 if large else 2100} --same-length --clamp-distances {1000 if large else 820}"
    print(f"wrote {options.output}: model.pt")
    print(
        f"evaluate it: poolingformer-eval-lm {options.data} --path {options.output / 'model.pt'} --batch-size 8 "
        f"{published}{' --skip-newlines' if newlines else ''}"
    )


def read_state(path: Path) -> State:
    """Return the parameters in a state dict.

    Raises:
        ConversionError: the file is missing or damaged, or is not a state dict.
    """
    try:
        with files.conversion_errors(path):
            state = checkpoint_files.read(path)
    except ConversionError as error:
        if "mem_transformer" in str(error):
            raise ConversionError(
                f"{path} is a whole module, which only Transformer-XL's code can read: {SAVING}"
            ) from None
        raise
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ConversionError(f"{path} is not a state dict: {SAVING}")
    return {name.removeprefix("module."): value for name, value in state.items()}


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
    from fairseq_poolingformer.char_lm.models import ARCHITECTURES, DEFAULTS

    rest = {name: value.float() if value.dtype == torch.float16 else value for name, value in state.items()}
    rest.pop("pos_emb.inv_freq", None)
    if any("emb_projs" in name or "out_projs" in name or re.search(r"_layers\.[1-9]", name) for name in rest):
        raise ConversionError(
            "the model has adaptive embeddings: a word model, such as wt103's; transformer_xl_lm reads bytes"
        )
    embedding, output, bias, content, position = (
        _take(rest, name)
        for name in (
            "word_emb.emb_layers.0.weight",
            "crit.out_layers.0.weight",
            "crit.out_layers.0.bias",
            "r_w_bias",
            "r_r_bias",
        )
    )
    if len(embedding) != len(order):
        raise ConversionError(
            f"the model has {len(embedding)} symbols, but the data folder has {len(order)} beside newlines: give the "
            "folder of the text that the model was trained on"
        )
    shared = torch.equal(embedding, output)
    converted: State = {
        "decoder.embed_tokens.weight": rows_of_bytes(embedding, order, 0.0),
        "decoder.output_projection.weight": rows_of_bytes(output, order, 0.0),
        "decoder.output_projection.bias": rows_of_bytes(bias, order, NEVER),
    }
    # what the first byte is predicted from: the published evaluation does not predict it
    converted["decoder.embed_tokens.weight"][EOS] = embedding[0]
    if shared:
        converted["decoder.output_projection.weight"] = converted["decoder.embed_tokens.weight"]
    layers = 1 + max((int(name.split(".")[1]) for name in rest if re.match(r"layers\.\d+\.", name)), default=-1)
    for layer in range(layers):
        theirs, ours = f"layers.{layer}.", f"decoder.layers.{layer}."
        for letter, part in zip("qkv", _take(rest, f"{theirs}dec_attn.qkv_net.weight").chunk(3), strict=True):
            converted[f"{ours}attention.{letter}_proj.weight"] = part.clone()
        converted |= {ours + own: _take(rest, theirs + name) for name, own in _LAYER_NAMES.items()}
        converted |= {f"{ours}positions.content_bias": content, f"{ours}positions.position_bias": position}
    if rest:
        raise ConversionError(f"transformer_xl_lm has no place for {', '.join(sorted(rest))}")
    heads, width = len(content), embedding.size(1)
    if content.numel() != width:
        raise ConversionError(f"the heads' {heads} × {content.size(1)} numbers are not the model's width, {width}")
    settings = {
        **DEFAULTS,
        **ARCHITECTURES["transformer_xl_lm"],
        "arch": "transformer_xl_lm",
        "task": "char_lm",
        "criterion": "char_lm",
        "tokens_per_sample": memory_length,  # as in its scripts
        "eval_context": 2 * memory_length,
        "memory_length": memory_length,
        "decoder_layers": layers,
        "decoder_embed_dim": width,
        "decoder_ffn_embed_dim": len(converted["decoder.layers.0.feed_forward.fc1.weight"]),
        "decoder_attention_heads": heads,
        "share_decoder_input_output_embed": shared,
    }
    return settings, converted


def _take(state: State, name: str) -> Tensor:
    if name not in state:
        raise ConversionError(f"no parameter {name}: not a character model of Transformer-XL with --attn_type 0")
    return state.pop(name)
