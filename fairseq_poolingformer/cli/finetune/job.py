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
from torch import nn
from transformers import GenerationConfig
from transformers.trainer_utils import set_seed

from fairseq_poolingformer.cli.finetune.base import SHORT, SYSTEMS, TWO_LEVELS, Base
from fairseq_poolingformer.cli.finetune.data import Data
from fairseq_poolingformer.cli.finetune.stopping import Stopping
from fairseq_poolingformer.cli.finetune.tasks import TASKS, Answers, Summaries, Task
from fairseq_poolingformer.cli.finetune.training import Training, arguments, duration, measure, rows_in_memory
from fairseq_poolingformer.text.atomic_write import disk_errors, write_lines
from fairseq_poolingformer.text.json_file import read_json_file

ARGUMENTS, RESULT = "arguments.json", "result.json"
SAMPLE = 2000  # documents whose tokens are counted
FEW_LONGER = 0.01  # of the documents, for which no model is made long
BEAMS = 4
BESIDE = 1.3  # what validation and the optimizer add to passes forward and back
LOOSE = 10**9  # tokens; a length that cuts nothing


def train_all(
    data: Data, base: Base, args: argparse.Namespace, given: Mapping[str, Any], folder: Path, stopping: Stopping
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train what is not trained yet; return the results, and facts for the card."""
    for note in base.notes:
        print(note)
    task = TASKS[data.task](data, base, LOOSE)
    task.names = data.labels
    sizes = _sizes(task)
    longest = int(np.quantile(sizes, 1 - FEW_LONGER, method="lower"))
    length = base.reads(longest, args.length, args.keep_short)
    systems = _systems(args.compare, base, length)
    split = "test" if data.splits.get("test") else "valid"
    examples = data.splits[split]
    results: dict[str, Any] = {}
    for system in systems:
        stopping.check()
        one = replace(task, length=min(length, base.length) if system == SHORT else length)
        longer = 100 * float(np.mean(sizes > one.length))
        print(
            f"\n{system}: {base.name} reads {one.length:,} tokens"
            + (f"; of {longer:.0f} % of the documents the rest {one.cut}" if longer else "")
        )
        if not (folder / system / RESULT).is_file():
            with _explained(one, folder / system):
                _train(one, system, given, folder / system, split, stopping, has_choice=len(systems) == 1)
        results[system] = read_json_file(folder / system / RESULT)
    for name, predictions in task.baselines(examples).items():
        results[name] = {"figures": task.evaluate(split, predictions)}
    sign = -1 if task.best == "loss" else 1
    chosen = max(systems, key=lambda system: sign * results[system]["best"])
    facts = {
        "data": Path(data.name).stem,
        "columns": ", ".join(data.found.used) or data.found.purpose.text,
        "examples": ", ".join(f"{len(one):,} {name}" for name, one in data.splits.items()),
        "tokens read": f"{results[chosen]['tokens']:,}; the rest of longer documents {task.cut}",
        **results[chosen]["facts"],
        "systems compared": ", ".join(systems) if len(systems) > 1 else None,
    }
    return {"split": split, "examples": len(examples), "system": chosen, "task": data.task, "systems": results}, facts


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


def _sizes(task: Task) -> np.ndarray:
    """(n,) tokens of training examples, the first ones where there are many."""
    texts = [one.texts[:1] if task.data.task == "summarization" else one.texts for one in task.data.splits["train"]]
    joined = [" ".join(one) for one in texts[:SAMPLE]]
    return np.array([len(ids) for ids in task.tokenizer(joined, verbose=False)["input_ids"]])


def _train(
    task: Task, system: str, given: Mapping[str, Any], folder: Path, split: str, stopping: Stopping, has_choice: bool
) -> None:
    """Train and evaluate one system; its folder has the model, its predictions and, when whole, RESULT."""
    process, base, seed = PartialState(), task.base, given.get("seed", 1)
    set_seed(seed)
    model = base.build(system, task.length, task.data.labels, task.data.problem)
    task.prepare(model)
    train = task.features(task.data.splits["train"])
    if process.is_main_process and not (folder / ARGUMENTS).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        chosen = arguments(given, task, folder / "checkpoints", len(train), max(len(one["input_ids"]) for one in train))
        seconds = _fit(task, model, train, chosen)
        print(f"  the training takes about {duration(seconds)}, as measured on the longest document")
        if has_choice and system == TWO_LEVELS and not base.is_long:
            short = replace(task, length=base.length)
            short.names = task.names
            other = base.build(SHORT, base.length, task.data.labels, task.data.problem)
            short.prepare(other)
            cost = _fit(short, other, short.features(task.data.splits["train"]), dict(chosen))
            print(f"  with --keep-short about {duration(cost)}: {base.length:,} tokens, the rest {task.cut}")
            del other
        write_lines(folder / ARGUMENTS, [json.dumps(chosen, indent=1, default=str)])
    process.wait_for_everyone()
    stopping.check()
    chosen = read_json_file(folder / ARGUMENTS)
    if isinstance(task, Summaries):
        ids = {
            name: value for name, value in model.generation_config.to_diff_dict().items() if name.endswith("token_id")
        }
        most = chosen.get("generation_max_length") or task.target_length
        beams = chosen.get("generation_num_beams") or BEAMS
        model.generation_config = GenerationConfig(**ids, num_beams=beams, max_length=most, early_stopping=beams > 1)
    set_seed(seed)
    training = Training(task, model, chosen, train, stopping)
    seconds = training.run()
    if isinstance(task, Answers) and task.has_unanswerable:
        valid = task.data.splits["valid"]
        task.threshold = task.figures(valid, training.predict(valid))["best_f1_thresh"]
        model.config.no_answer_threshold = task.threshold
        print(f"  no answer above a probability of {task.threshold:.3f}, the best of validation")
    examples = task.data.splits[split]
    print(f"  predicting {len(examples):,} examples of {split} …", flush=True)
    predictions = training.predict(examples)
    training.trainer.save_model(str(folder / "model"))
    if process.is_main_process:
        task.tokenizer.model_max_length = task.length
        task.tokenizer.save_pretrained(folder / "model")
        (folder / "model" / "training_args.bin").unlink(missing_ok=True)
        write_lines(folder / f"{split}.predictions.jsonl", task.lines(examples, predictions))
        state, used = training.trainer.state, training.arguments
        batch = used.train_batch_size * used.gradient_accumulation_steps * used.world_size
        searched = f"the best checkpoint of {sum('eval_loss' in one for one in state.log_history)} by {task.best}"
        if isinstance(task, Summaries):
            searched += f"; {model.generation_config.num_beams} beams, generation_config.json"
        facts = {
            "learning rate": f"{used.learning_rate:g}, {used.lr_scheduler_type.value}",
            "updates": f"{state.global_step:,} of {batch} examples, {state.epoch:.3g} epochs; seed {used.seed}",
            "chosen on validation": searched,
        }
        best = state.best_metric if state.best_metric is not None else state.log_history[-1].get(f"eval_{task.best}", 0)
        result = {"tokens": task.length, "best": best, "facts": facts, "figures": task.evaluate(split, predictions)}
        result |= {"seconds": seconds} if seconds else {}
        write_lines(folder / RESULT, [json.dumps(result, indent=1)])
    process.wait_for_everyone()


def _fit(task: Task, model: nn.Module, train: list[dict], chosen: dict[str, Any]) -> float:
    """Measure the longest example; take as many at a time as a GPU holds; return the seconds to expect."""
    on_gpu = torch.cuda.is_available() and not chosen.get("use_cpu")
    device, rows = torch.device("cuda" if on_gpu else "cpu"), chosen["per_device_train_batch_size"]
    longest = max(train, key=lambda one: len(one["input_ids"]))
    batch = task.collator(model)([{name: value for name, value in longest.items() if name != "places"}])
    seconds = 0.0
    try:
        for _ in range(1 + on_gpu):  # the first pass is slow there
            seconds, peak = measure(model, batch, device)
        held = rows_in_memory(model, peak, rows) if on_gpu else rows
    except torch.OutOfMemoryError:
        held = 0
    if not held:
        chosen["gradient_checkpointing"] = True
        print("  the GPU does not hold one document, so that layers are computed twice (--gradient_checkpointing)")
    updates = chosen["gradient_accumulation_steps"] * rows
    chosen["per_device_train_batch_size"] = chosen["per_device_eval_batch_size"] = max(1, held)
    chosen["gradient_accumulation_steps"] = updates // max(1, held)
    epochs = chosen["num_train_epochs"]
    if chosen.get("max_steps", -1) > 0:
        epochs = min(epochs, chosen["max_steps"] * updates / len(train))
    tokens = sum(len(one["input_ids"]) for one in train) * epochs
    return BESIDE * seconds / len(longest["input_ids"]) * tokens / (max(1, torch.cuda.device_count()) if on_gpu else 1)


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
    except torch.OutOfMemoryError as error:
        raise ValueError(lacking) from error
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        raise ValueError(lacking) from error
