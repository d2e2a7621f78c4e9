"""What the converters of published character models share: their arguments, reading, embeddings of bytes, writing."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.checkpoint_reader import checkpoints as checkpoint_files
from fairseq_poolingformer.cli.command import load_fairseq
from fairseq_poolingformer.patches.long_jobs.nonfinite import require_finite
from fairseq_poolingformer.text.byte_symbols import NUM_SYMBOLS
from fairseq_poolingformer.text.dictionary import EOS
from fairseq_poolingformer.weights import ConversionError, Settings, State, files

NEVER = -1e4  # bias of symbols that the published model lacks: probability 0, in float16 too


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], None], summary: str, source: str, metavar: str
) -> argparse.ArgumentParser:
    """Add a converter to the subcommands of ``poolingformer-convert``, and return its parser.

    Args:
        commands: the subcommands.
        name: of this one.
        run: does the work; fairseq, which has the settings of the architecture, is loaded before.
        summary, source: the help of the command and of its first argument.
        metavar: the first argument's name.
    """
    parser = commands.add_parser(name, help=summary)
    parser.set_defaults(convert=lambda options: (load_fairseq(), run(options)))
    parser.add_argument("source", type=Path, metavar=metavar, help=source)
    parser.add_argument(
        "data",
        type=Path,
        metavar="DATA_FOLDER",
        help="data folder of the text that the model was trained on, which numbers the symbols",
    )
    parser.add_argument("output", type=Path, metavar="OUTPUT_FOLDER", help="new folder to write model.pt into")
    return parser


def read(path: Path, complaint: str, entry: str | None = None) -> State:
    """Return the parameters in a published checkpoint, without the prefix that data parallelism gives them.

    Args:
        path: the file.
        complaint: the end of the message where it holds something else.
        entry: the name under which it has them; None where it holds nothing else.

    Raises:
        ConversionError: the file is missing or damaged, holds something else, or numbers that are NaN or infinite.
    """
    with files.conversion_errors(path):
        state = checkpoint_files.read(path)
        if entry is not None:
            state = state.get(entry) if isinstance(state, dict) else None
        if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
            raise ConversionError(f"{path} {complaint}")
        require_finite(path, state)
    return {name.removeprefix("module."): value for name, value in state.items()}


def taken(state: State, name: str, model: str) -> Tensor:
    """Remove a parameter from a state dict and return it.

    Raises:
        ConversionError: there is none; the message says that it is not a ``model``.
    """
    if name not in state:
        raise ConversionError(f"no parameter {name}: not a {model}")
    return state.pop(name)


def renamed_layers(state: State, names: Mapping[str, str], model: str) -> tuple[int, State]:
    """Remove the parameters of layers that have another name here, and nothing else; return how many layers, and these.

    Args:
        state: the published parameters.
        names: the published name in a layer -> this package's.
        model: as :func:`taken` takes it.
    """
    layers = 1 + max((int(name.split(".")[1]) for name in state if re.match(r"layers\.\d+\.", name)), default=-1)
    return layers, {
        f"decoder.layers.{layer}.{ours}": taken(state, f"layers.{layer}.{theirs}", model)
        for layer in range(layers)
        for theirs, ours in names.items()
    }


def embeddings(embedding: Tensor, output: Tensor, bias: Tensor, order: list[int], before: int, complaint: str) -> State:
    """Return the embedding and the output layer with a row for each symbol of the dictionary of bytes.

    Args:
        embedding, output: (V, C).
        bias: (V,).
        order: dictionary index of each of the V symbols.
        before: the published index of the symbol that the first byte is predicted from.
        complaint: the end of the message where V is another number.

    Raises:
        ConversionError: ``order`` has another number of symbols.
    """
    if len(embedding) != len(order):
        raise ConversionError(f"the model has {len(embedding)} symbols, but {complaint}")
    converted = {
        "decoder.embed_tokens.weight": _rows_of_bytes(embedding, order, 0.0),
        "decoder.output_projection.weight": _rows_of_bytes(output, order, 0.0),
        "decoder.output_projection.bias": _rows_of_bytes(bias, order, NEVER),
    }
    converted["decoder.embed_tokens.weight"][EOS] = embedding[before]
    return converted


def _rows_of_bytes(values: Tensor, order: list[int], other: float) -> Tensor:
    """Return a row for each symbol of the dictionary of bytes, ``other`` for symbols that the model lacks."""
    rows = values.new_full((NUM_SYMBOLS, *values.shape[1:]), other)
    rows[torch.tensor(order)] = values
    return rows


def settings_of(arch: str, layers: int, heads: int, converted: State, **own: Any) -> Settings:
    """Return the settings of a converted model: its sizes, ``own``, and the architecture's for the rest."""
    from fairseq_poolingformer.char_lm.models import ARCHITECTURES, DEFAULTS

    return {
        **DEFAULTS,
        **ARCHITECTURES[arch],
        **{"arch": arch, "task": "char_lm", "criterion": "char_lm"},
        "decoder_layers": layers,
        "decoder_embed_dim": converted["decoder.embed_tokens.weight"].size(1),
        "decoder_ffn_embed_dim": len(converted["decoder.layers.0.feed_forward.fc1.weight"]),
        "decoder_attention_heads": heads,
        **own,
    }


def write(options: argparse.Namespace, settings: Settings, converted: State, flags: str = "") -> None:
    """Write ``model.pt``, and print the command that evaluates it, with ``flags``."""
    with files.new_folder(options.output) as folder:
        files.write_checkpoint(folder / "model.pt", {**settings, "data": str(options.data)}, converted)
    print(f"wrote {options.output}: model.pt")
    path = options.output / "model.pt"
    print(f"evaluate it: poolingformer-eval-lm {options.data} --path {path} --batch-size 8 {flags}".rstrip())
