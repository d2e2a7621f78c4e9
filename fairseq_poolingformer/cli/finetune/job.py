"""All trainings of a job: one, or one of each system that is compared, and what they and simple baselines are worth."""

from __future__ import annotations

import argparse
import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from safetensors import SafetensorError
from transformers.trainer_utils import set_seed

from fairseq_poolingformer.cli.finetune.base import SHORT, SYSTEMS, TWO_LEVELS, Base
from fairseq_poolingformer.cli.finetune.data import Data
from fairseq_poolingformer.cli.finetune.results import duration, leave
from fairseq_poolingformer.cli.finetune.tasks import TASKS, Task
from fairseq_poolingformer.cli.finetune.training import RESULT, arguments, expect, train
from fairseq_poolingformer.text.atomic_write import disk_errors, write_lines
from fairseq_poolingformer.text.json_file import read_json_file

ARGUMENTS = "arguments.json"
SAMPLE = 2000  # documents whose tokens are counted
FEW_LONGER = 0.01  # of the documents, for which no model is made long


def train_all(data: Data, base: Base, args: argparse.Namespace, given: Mapping[str, Any], folder: Path) -> Any:
    """Train what is not trained yet, and leave the best of it in the folder above; return the results."""
    print("\n".join([*base.notes, ""]), end="")
    kind = TASKS[data.task]
    texts = [one.texts[:1] if data.task == "summarization" else one.texts for one in data.splits["train"][:SAMPLE]]
    sizes = np.array([len(ids) for ids in base.tokenizer([" ".join(one) for one in texts], verbose=False)["input_ids"]])
    length = base.reads(int(np.quantile(sizes, 1 - FEW_LONGER, method="lower")), args.length, args.keep_short)
    split = "test" if data.splits.get("test") else "valid"
    systems = _systems(args.compare, base, length)
    results: dict[str, Any] = {}
    for system in systems:
        task = kind(data, base, min(length, base.length) if system == SHORT else length)
        longer = 100 * float(np.mean(sizes > task.length))
        rest = f"; of {longer:.0f} % of the documents the rest {task.cut}" if longer else ""
        print(f"\n{system}: {base.name} reads {task.length:,} tokens{rest}", flush=True)
        if not (folder / system / RESULT).is_file():
            with _explained(task, folder / system):
                _train(task, system, given, folder / system, split, has_choice=len(systems) == 1 and not base.is_long)
        PartialState().wait_for_everyone()
        results[system] = read_json_file(folder / system / RESULT)
    examples = data.splits[split]
    for name, predictions in task.baselines(examples).items():
        results[name] = {"figures": task.evaluate(split, predictions)}
    sign = -1 if task.best == "loss" else 1
    chosen = max(systems, key=lambda system: sign * (results[system]["best"] or 0))
    result = {"split": split, "examples": len(examples), "system": chosen, "task": data.task, "systems": results}
    if PartialState().is_main_process:
        read = f"The model reads {results[chosen]['tokens']:,} tokens; the rest of longer documents {task.cut}."
        leave(folder.parent, folder / chosen / "model", result, f"{data.columns()}.\n{read}")
    return result


def _systems(asked: str | None, base: Base, length: int) -> list[str]:
    if asked is None:
        return [TWO_LEVELS if base.is_long or length > base.length else SHORT]
    found = asked.split(",")
    if unknown := [name for name in found if name not in SYSTEMS]:
        raise ValueError(f"--compare {unknown[0]}: must be some of {','.join(SYSTEMS)}")
    if base.is_long or not base.long_class:
        reason = "has two levels already; give the short model that it was made from" if base.is_long else "stays short"
        raise ValueError(f"--compare: {base.name} {reason}" + (f": {base.why_not_long}" if not base.is_long else ""))
    return list(dict.fromkeys(found))


def _train(task: Task, system: str, given: Mapping[str, Any], folder: Path, split: str, has_choice: bool) -> None:
    """Train one system, with arguments that are chosen once, before its first update."""
    set_seed(given.get("seed", 1))
    model = task.start(system, given)
    if PartialState().is_main_process and not (folder / ARGUMENTS).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        features = task.features(task.data.splits["train"])
        longest = max(len(one["input_ids"]) for one in features)
        chosen = arguments(given, task, folder / "checkpoints", len(features), longest)
        seconds = expect(task, model, features, chosen)
        print(f"  the training takes about {duration(seconds)}, as measured on the longest document")
        if has_choice and system == TWO_LEVELS:
            short = replace(task, length=task.base.length)
            other = short.start(SHORT, given)
            seconds = expect(short, other, short.features(task.data.splits["train"]), dict(chosen))
            print(f"  with --keep-short about {duration(seconds)}: {short.length:,} tokens, the rest {task.cut}")
        write_lines(folder / ARGUMENTS, [json.dumps(chosen, indent=1, default=str)])
    PartialState().wait_for_everyone()
    train(task, model, read_json_file(folder / ARGUMENTS), folder, split)


@contextmanager
def _explained(task: Task, folder: Path) -> Iterator[None]:
    """Say in a sentence what is full: a disk, or the memory."""
    lacking = (
        f"no memory for {task.length:,} tokens; give --per_device_train_batch_size 1, --gradient_checkpointing true, "
        "or a smaller --length"
    )
    try:
        with disk_errors(folder, folder / "-"):
            yield
    except SafetensorError as error:
        raise OSError(errno.EIO, f"could not be written ({error})", str(folder)) from error
    except RuntimeError as error:
        if "allocate memory" not in str(error) and not isinstance(error, torch.OutOfMemoryError):
            raise
        raise ValueError(lacking) from error
