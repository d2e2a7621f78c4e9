"""Predictions of records by a model of transformers: a label or a summary each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm
from transformers import logging

from fairseq_poolingformer.cli.finetune import data
from fairseq_poolingformer.cli.finetune.base import ENDS, SUMMARIES, Base, config_of
from fairseq_poolingformer.cli.finetune.results import SCORES
from fairseq_poolingformer.cli.finetune.tasks import TASKS, Task
from fairseq_poolingformer.cli.models import DTYPES, batches
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.huggingface import opening, summarize
from fairseq_poolingformer.preprocess.records import options
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.labels import ONE


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the options that say how records are read."""
    parser = argparse.ArgumentParser(prog="poolingformer-predict", usage=argparse.SUPPRESS, add_help=False)
    parser.add_argument("--text-column")
    options.add_reading(parser)
    return parser


def run(args: argparse.Namespace) -> None:
    """Write a line of each record, as ``poolingformer score`` reads it; records that cannot be used are counted."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if args.output.exists() and args.data.exists() and args.output.samefile(args.data):
        raise UsageError(f"--output {args.output}: is the file of the records; name another one")
    if args.output.exists():
        print(f"{args.output}: is replaced", file=sys.stderr)
    reading = make_parser().parse_args(args.further)
    scores = Path(args.path, SCORES)
    if scores.is_file():
        reading.text_column = reading.text_column or read_json_file(scores).get("text_column")
    task, model = _opened(args)
    examples, rejects = data.to_predict(str(args.data), reading, args.subset)
    if not examples:
        raise ValueError(rejects[0] if rejects else f"{args.data}: no records in it")
    with opening.explained(args.path, f"{opening.CONFIG} or {opening.GENERATION}"):
        predictions = _predict(task, model, examples, args.max_tokens)
    write_lines(args.output, task.lines(examples, predictions))
    print(f"{args.output}: predictions of {len(examples):,} records, {task.base.task}", file=sys.stderr)
    if said := task.cut(task.sizes(examples)):
        print(said, file=sys.stderr)
    if rejects:
        print(f"left out: {len(rejects):,} that cannot be used, such as {rejects[0]}", file=sys.stderr)


def _opened(args: argparse.Namespace) -> tuple[Task, nn.Module]:
    """The task of a folder, and its model with all weights."""
    config = config_of(args.path, args.path)
    name = next((name for name, end in ENDS.items() if end in str(config.architectures)), "")
    name = name or (SUMMARIES if config.is_encoder_decoder else "")
    if not name:
        raise ValueError(f"{args.path}: a model without a head: train one, with poolingformer finetune")
    if name != SUMMARIES and (config.num_labels < 2 or config.problem_type not in (None, ONE)):
        raise ValueError(
            f"{args.path}: num_labels {config.num_labels}, problem_type {config.problem_type}: predicts amounts or "
            "several labels; take a model of one label of two or more"
        )
    base = Base(args.path, args.path, name)
    length = base.reads(0, None, keep_short=True)
    if args.max_positions:
        if args.max_positions > length:
            raise ValueError(f"--max-positions {args.max_positions}: {args.path} reads {length:,} tokens")
        base.tokenizer.model_max_length = length = args.max_positions
    model = opening.load(base.auto, base.place, dtype=torch.float32).to(args.device, DTYPES[args.precision])
    return TASKS[name](base, length, list(config.id2label.values())), model.eval()


@torch.inference_mode()
def _predict(task: Task, model: nn.Module, examples: Sequence[Any], max_tokens: int) -> list:
    if task.base.task == SUMMARIES:
        rows = max(1, max_tokens // task.length)
        return summarize([example.texts[0] for example in examples], model, tokenizer=task.tokenizer, batch_size=rows)
    features = task.features(examples)
    opening.check_ids(features, model, task.base.name)
    logits: list[Any] = [None] * len(features)
    collate = task.collate(model)
    with tqdm(total=len(features), unit="text", disable=None) as progress:
        for rows in batches([len(inputs["input_ids"]) for inputs in features], max_tokens):
            output = model(**collate([features[row] for row in rows]).to(model.device))
            for row, values in zip(rows, output.logits.float().cpu().numpy(), strict=True):
                logits[row] = values
            progress.update(len(rows))
    return task.decode(logits)
