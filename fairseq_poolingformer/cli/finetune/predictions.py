"""What a model of transformers says of records whose labels, answers or summaries are not known."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm
from transformers import logging

from fairseq_poolingformer.cli.finetune.base import ENDS, SHORT, Base, config_of
from fairseq_poolingformer.cli.finetune.data import Data
from fairseq_poolingformer.cli.finetune.results import SCORES
from fairseq_poolingformer.cli.finetune.tasks import TASKS, Task
from fairseq_poolingformer.cli.models import batches
from fairseq_poolingformer.cli.options import DTYPES
from fairseq_poolingformer.huggingface import summarize
from fairseq_poolingformer.preprocess.guess import INPUT_KEYS, to_predict
from fairseq_poolingformer.preprocess.pipeline.records import Example, Reject, parsed
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.labels import ONE

NOT_KNOWN = ("labels", "start_positions", "end_positions", "places")  # of features, those that no model reads


def run(args: argparse.Namespace) -> None:
    """Write a line of each record, as ``poolingformer score`` reads it; records that cannot be used are counted."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    config, scores = config_of(args.path, args.path), Path(args.path, SCORES)
    name = next((name for name, end in ENDS.items() if end in str(config.architectures)), "")
    name = name or ("summarization" if config.is_encoder_decoder else "")
    if not name:
        raise ValueError(f"{args.path}: a model without a head: train one, with poolingformer finetune")
    base, labels = Base(args.path, args.path, name), list(config.id2label.values())
    keys = read_json_file(scores).get("keys", {}) if scores.is_file() else {}
    known = {"labels": labels, "problem_type": config.problem_type or ONE}
    known |= {name: keys[name] for name in INPUT_KEYS if name in keys}
    found = to_predict(str(args.data), name, args.further, known)
    examples, rejects = [], []
    for record in found.corpus.splits["train"].records():
        example = parsed(record, partial(found.corpus.parse, annotated=False))
        if isinstance(example, Example):
            examples.append(example)
        elif isinstance(example, Reject):
            rejects.append(f"{record.file}, line {record.line}: {example.reason}")
    if not examples:
        raise ValueError(rejects[0] if rejects else f"{args.data}: no records in it")
    length = base.reads(0, None, keep_short=True)
    if args.max_positions:
        if args.max_positions > length:
            raise ValueError(f"--max-positions {args.max_positions}: {args.path} reads {length:,} tokens")
        base.tokenizer.model_max_length = length = args.max_positions
    task = TASKS[name](Data(str(args.data), found, {"test": examples}), base, length)
    model = base.build(SHORT, task.length, labels, task.data.problem).to(args.device, DTYPES[args.precision]).eval()
    task.names = list(model.config.id2label.values())
    if name == "question-answering":
        task.threshold = getattr(config, "no_answer_threshold", 1.0)
    write_lines(args.output, task.lines(examples, _predict(task, model, examples, args.max_tokens)))
    print(f"{args.output}: predictions of {len(examples):,} records, {name}", file=sys.stderr)
    if rejects:
        print(f"left out: {len(rejects):,} that cannot be used, such as {rejects[0]}", file=sys.stderr)


@torch.inference_mode()
def _predict(task: Task, model: nn.Module, examples: Sequence[Any], max_tokens: int) -> list:
    if task.data.task == "summarization":
        rows = max(1, max_tokens // task.length)
        return summarize([one.texts[0] for one in examples], model, tokenizer=task.tokenizer, batch_size=rows)
    features = task.features(examples)
    outputs: list[Any] = [None] * len(features)
    collate = task.collate(model)
    with tqdm(total=len(features), unit="segment", disable=None) as progress:
        for rows in batches([len(one["input_ids"]) for one in features], max_tokens):
            read = [{key: x for key, x in features[row].items() if key not in NOT_KNOWN} for row in rows]
            found = task.smaller(model(**collate(read).to(model.device)).to_tuple(), None)
            several = isinstance(found, tuple)
            arrays = [x.float().cpu().numpy() for x in (found if several else (found,))]
            for row, *values in zip(rows, *arrays, strict=True):
                outputs[row] = values if several else values[0]
            progress.update(len(rows))
    return task.decode(examples, features, list(zip(*outputs, strict=True)) if several else outputs)
