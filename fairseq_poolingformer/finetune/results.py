"""The figures of a trained model for people, and the folder that it leaves."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fairseq_poolingformer.checkpoint_reader.checkpoints import OPTIMIZER, load
from fairseq_poolingformer.cli import convert
from fairseq_poolingformer.extras import MissingLibraryError
from fairseq_poolingformer.finetune.evaluation import checkpoint_of
from fairseq_poolingformer.finetune.processes import Commands
from fairseq_poolingformer.patches.long_jobs import companions
from fairseq_poolingformer.tasks.shared.estimates import RESAMPLES
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.table import aligned
from fairseq_poolingformer.text.whole_file import whole_file, write_lines
from fairseq_poolingformer.weights import ConversionError, card, files
from fairseq_poolingformer.weights.convert import FAMILIES, default_model_type

CHECKPOINT = "model.pt"
FEW = 30  # examples, of which figures say little


def as_text(result: Mapping[str, Any]) -> str:
    """The figures, for people."""
    if not result["figures"]:
        scored = f"poolingformer score {result.get('predictions', 'PREDICTIONS')} --gold RELEASED-FILE"
        return f"{result['split']} is predicted; what is right is not known here: {scored} compares"
    rows = [[f"{result['split']}, {result['examples']:,} examples", "%", f"95 % of {RESAMPLES} resamples (bootstrap)"]]
    rows += [[_title(name), f"{one['mean']:.2f}", _interval(one)] for name, one in result["figures"].items()]
    notes = []
    if missing := result.get("without_prediction"):
        notes.append(f"{missing:,} more were rejected before, and count nowhere")
    if result["examples"] < FEW:
        notes.append(f"{result['examples']} examples are few: these figures say little")
    return "\n".join([aligned(rows), *notes])


def _title(figure: str) -> str:
    return "mse (not in %)" if figure == "mse" else figure


def _interval(one: Mapping[str, float]) -> str:
    return f"[{one['low']:.2f}, {one['high']:.2f}]" if "low" in one else ""


def leave(
    output: Path, folder: Path, data: Path, name: str, result: Mapping[str, Any], commands: Commands
) -> list[str]:
    """Put the model into its folder: for fairseq and for transformers, with dictionary, tokenizer and card.

    Args:
        output: the folder.
        folder: of the job.
        data: the data folder.
        name: of the data, for the card.
        result: of :func:`~fairseq_poolingformer.finetune.evaluation.evaluate`.
        commands: note the conversion.

    Returns:
        Sentences for people.
    """
    with whole_file(output / CHECKPOINT) as path:
        torch.save({**load(checkpoint_of(folder), (OPTIMIZER,)), OPTIMIZER: None}, path)
    companions.copy(data, output)
    shutil.copyfile(data / "corpus.json", output / "corpus.json")
    notes = []
    made = folder / "transformers" / output.name  # whose name the card takes
    shutil.rmtree(made.parent, ignore_errors=True)  # of a run that was stopped here
    words = ("convert", "to-huggingface", str(output / CHECKPOINT), str(made))
    commands.note("poolingformer", *words)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            args = convert.make_parser().parse_args(words[1:])
            args.convert(args)
        for path in made.iterdir():
            path.replace(output / path.name)
        shutil.rmtree(made.parent)
    except (ConversionError, MissingLibraryError) as error:
        notes.append(f"for fairseq only: {error}")
        settings, parameters, training = files.read_training(output / CHECKPOINT)
        family = FAMILIES[default_model_type(settings)]
        text = card.model_card(output.name, family, settings, parameters, library="fairseq", training=training)
        (output / card.CARD).write_text(text, encoding="utf-8")
    _complete_card(output / card.CARD, read_json_file(data / "corpus.json")["corpus"], name, result)
    write_lines(output / "scores.json", [json.dumps(result, indent=1)])
    return notes


def _complete_card(path: Path, corpus: str, name: str, result: Mapping[str, Any]) -> None:
    """Add the figures to a card, and call the data by their own name, not by that of the command that read them."""
    rows = {_title(figure): f"{one['mean']:.2f} {_interval(one)}".rstrip() for figure, one in result["figures"].items()}
    title = f"Results on {result['examples']:,} examples of {result['split']}, % [95 % interval]"
    text = path.read_text(encoding="utf-8")
    for quoted in ('"{}"', "`{}`"):
        text = text.replace(quoted.format(corpus), quoted.format(name))
    path.write_text(f"{text}\n{card.table(title, rows)}\n" if rows else text, encoding="utf-8")
