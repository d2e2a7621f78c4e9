"""The figures of a trained model for people, and the folder that it leaves."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fairseq_poolingformer.checkpoint_reader.checkpoints import OPTIMIZER, load
from fairseq_poolingformer.cli import convert
from fairseq_poolingformer.cli.finetune.evaluation import checkpoint_of
from fairseq_poolingformer.cli.finetune.processes import Commands
from fairseq_poolingformer.extras import MissingLibraryError
from fairseq_poolingformer.patches.long_jobs import companions
from fairseq_poolingformer.tasks.shared.estimates import RESAMPLES
from fairseq_poolingformer.text.atomic_write import atomic_write, write_lines
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.table import aligned
from fairseq_poolingformer.weights import ConversionError, card, files
from fairseq_poolingformer.weights.convert import FAMILIES, default_model_type
from fairseq_poolingformer.weights.heads import HEADS

CHECKPOINT = "model.pt"
ENDS = {head.task: head.end for head in HEADS} | {"long_summarization": "ForConditionalGeneration"}
USE = "`poolingformer predict DATA-FOLDER --path FOLDER --output predictions`; the tokenizer is in `tokenizer/`."
FEW = 30  # examples, of which figures say little


def as_text(result: Mapping[str, Any]) -> str:
    """The figures, for people."""
    if not result["figures"]:
        released = " ".join(result.get("made_of", ())) or "RELEASED-FILE"
        scored = f"poolingformer score --task {result['task']} {result['predictions']} --gold {released}"
        return f"{result['split']} is predicted; what is right is not known here: {scored} compares"
    rows = [[f"{result['split']}, {result['examples']:,} examples", "%", f"95 % of {RESAMPLES} resamples (bootstrap)"]]
    rows += [[_title(name), f"{one['mean']:.2f}", _interval(one)] for name, one in result["figures"].items()]
    notes = []
    if missing := result.get("without_prediction"):
        notes.append(f"{missing:,} more were left out or rejected before, and count nowhere")
    if result["examples"] < FEW:
        notes.append(f"{result['examples']} examples are few: these figures say little")
    return "\n".join([aligned(rows), *notes])


def _title(figure: str) -> str:
    return "mse (not in %)" if figure == "mse" else figure


def _interval(one: Mapping[str, float]) -> str:
    return f"[{one['low']:.2f}, {one['high']:.2f}]" if "low" in one else ""


def leave(
    output: Path, folder: Path, data: Path, name: str, task: str, result: Mapping[str, Any], commands: Commands
) -> list[str]:
    """Put the model into its folder: for fairseq and for transformers, with dictionary, tokenizer and card."""
    with atomic_write(output / CHECKPOINT) as path:
        torch.save({**load(checkpoint_of(folder), (OPTIMIZER,)), OPTIMIZER: None}, path)
    companions.copy(data, output)
    shutil.copyfile(data / "corpus.json", output / "corpus.json")
    notes = []
    try:
        if task not in ENDS:
            raise ConversionError(f"transformers has no model with a head for {task}")
        _convert(output, folder / "transformers", commands)
    except (ConversionError, MissingLibraryError) as error:
        notes.append(f"for fairseq only: {error}")
        settings, parameters, training = files.read_training(output / CHECKPOINT)
        family = FAMILIES[default_model_type(settings)]
        end = ENDS.get(task, "ForQuestionAnswering")  # others ask a question about a document, too
        facts = {"library": "fairseq", "architecture": end, "training": training}
        text = card.model_card(output.name, family, settings, parameters, **facts, use=USE)
        (output / card.CARD).write_text(text, encoding="utf-8")
    _complete_card(output / card.CARD, read_json_file(data / "corpus.json")["corpus"], name, result)
    write_lines(output / "scores.json", [json.dumps(result, indent=1)])
    return notes


def _convert(output: Path, scratch: Path, commands: Commands) -> None:
    """Put the model into its folder for transformers."""
    made = scratch / output.name  # whose name the card takes
    shutil.rmtree(scratch, ignore_errors=True)  # of a run that was stopped here
    words = ("convert", "to-huggingface", str(output / CHECKPOINT), str(made))
    commands.note("poolingformer", *words)
    with contextlib.redirect_stdout(io.StringIO()):
        args = convert.make_parser().parse_args(words[1:])
        args.convert(args)
    for path in made.iterdir():
        path.replace(output / path.name)
    shutil.rmtree(scratch)


def _complete_card(path: Path, corpus: str, name: str, result: Mapping[str, Any]) -> None:
    """Add the figures to a card, and call the data by their own name, not by that of the command that read them."""
    text = path.read_text(encoding="utf-8")
    for quoted in ('"{}"', "`{}`"):
        text = text.replace(quoted.format(corpus), quoted.format(name))
    if figures := {_title(figure): one for figure, one in result["figures"].items()}:
        facts, end, rest = text.partition("\n---\n")
        facts, task = facts.partition("\nmodel-index:")[0], re.search(r'^pipeline_tag: "(.*)"$', facts, re.MULTILINE)[1]
        split = "validation" if result["split"] == "valid" else result["split"]
        means = {title: f"{one['mean']:.2f}" for title, one in figures.items()}
        index = "\n".join(card.model_index(path.parent.name, task, name, split, means))
        rows = {title: f"{means[title]} {_interval(one)}".rstrip() for title, one in figures.items()}
        title = f"Results on {result['examples']:,} examples of {result['split']}, % [95 % interval]"
        text = f"{facts}\n{index}{end}{rest}\n{card.table(title, rows)}\n"
    path.write_text(text, encoding="utf-8")
