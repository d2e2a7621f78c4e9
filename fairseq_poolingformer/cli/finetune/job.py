"""All trainings of a job, by transformers' Trainer: one, or one of each system that is compared; and baselines.

A training's arguments are chosen once, before its first update. A signal ends it with a checkpoint, where it goes on.
"""

from __future__ import annotations

import argparse
import errno
import json
import math
import shutil
import signal
import time
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
from torch.utils.data import SequentialSampler
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import get_last_checkpoint, set_seed

from fairseq_poolingformer.cli.finetune.base import SHORT, SYSTEMS, TWO_LEVELS, Base
from fairseq_poolingformer.cli.finetune.data import Data
from fairseq_poolingformer.cli.finetune.results import HIDDEN, duration, leave
from fairseq_poolingformer.cli.finetune.tasks import TASKS, Summaries, Task
from fairseq_poolingformer.huggingface.card import source_of
from fairseq_poolingformer.text.atomic_write import disk_errors, write_lines
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.weights.card import CARD

ARGUMENTS, RESULT = "arguments.json", "result.json"
SAMPLE = 2000  # documents whose tokens are counted
FEW_LONGER = 0.01  # of the documents, for which no model is made long
UPDATES_PER_EPOCH = 50  # that a batch leaves, where the documents are few
SMALL, SMALL_LR = 256, 5e-4  # models up to this width learn at a high rate only
T5_LR = 3e-4
TOKENS_ON_CPU = 8192  # of a batch, at a time
BESIDE = 1.3  # what validation and the optimizer add to passes forward and back
STATE = "trainer_state.json"  # the last file that Trainer writes of a checkpoint
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def train_all(data: Data, base: Base, args: argparse.Namespace, given: Mapping[str, Any], folder: Path) -> Any:
    """Train what is not trained yet, and leave the best of it in the folder above; return the results."""
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
    result["keys"] = data.found.keys
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
    features = {name: task.features(task.data.splits[name]) for name in dict.fromkeys(("train", "valid", split))}
    if PartialState().is_main_process and not (folder / ARGUMENTS).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        longest = max(len(one["input_ids"]) for one in features["train"])
        chosen = arguments(given, task, folder / "checkpoints", len(features["train"]), longest)
        seconds = expect(task, model, features["train"], chosen)
        print(f"  the training takes about {duration(seconds)}, as measured on the longest document")
        if has_choice and system == TWO_LEVELS:
            short = replace(task, length=task.base.length)
            other = short.start(SHORT, given)
            seconds = expect(short, other, short.features(task.data.splits["train"]), dict(chosen))
            print(f"  with --keep-short about {duration(seconds)}: {short.length:,} tokens, the rest {task.cut}")
        write_lines(folder / ARGUMENTS, [json.dumps(chosen, indent=1, default=str)])
    PartialState().wait_for_everyone()
    train(task, model, features, read_json_file(folder / ARGUMENTS), folder, split)


@contextmanager
def _explained(task: Task, folder: Path) -> Iterator[None]:
    """Say in a sentence what is full: a disk, or the memory."""
    lacking = (
        f"no memory for {task.length:,} tokens; give --per_device_train_batch_size 1, --gradient_checkpointing true, "
        "or a smaller --length, with another --output-folder"
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


class Stopping(TrainerCallback):
    """Ends a training with a checkpoint where a signal asks for it; a second one ends it at once."""

    asked = 0  # the signal's number

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Take the signals, which end the command by themselves before and after."""
        self._before = {number: signal.signal(number, self._take) for number in SIGNALS}

    def _take(self, number: int, frame: Any) -> None:
        self.asked = number
        self.on_train_end()
        print("\nstopping after this update, with a checkpoint (interrupt again: at once)", flush=True)

    def on_train_end(self, *_: Any, **more: Any) -> None:
        """Leave the signals to themselves."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Save, where any process was asked to stop; at the end of an epoch Trainer evaluates first, and saves."""
        if args.world_size > 1:
            asked = torch.tensor(self.asked, device=args.device)
            torch.distributed.all_reduce(asked, torch.distributed.ReduceOp.MAX)
            self.asked = int(asked)
        if self.asked and not float(state.epoch).is_integer():
            control.should_save = True

    def on_save(self, *_: Any, **more: Any) -> None:
        """End as the signal does."""
        if self.asked:
            PartialState().wait_for_everyone()
            self.on_train_end()
            signal.raise_signal(self.asked)


class ByLength(LengthGroupedSampler):
    """transformers' sampler, whose order follows from the seed and the epoch, so that one can go on within an epoch."""

    seed = 0

    def set_epoch(self, epoch: int) -> None:
        """Trainer names each epoch before it begins."""
        self.generator = torch.Generator().manual_seed(2**20 * self.seed + epoch)


class ReproducibleTrainer(Seq2SeqTrainer):
    """Trainer with this sampler; what is predicted keeps its order, and its number, whatever processes there are."""

    def _get_eval_sampler(self, eval_dataset: Any) -> SequentialSampler:
        return SequentialSampler(eval_dataset)

    def evaluation_loop(self, *args: Any, **more: Any) -> Any:
        """Leave out what fills the last batch of several processes, which Seq2SeqTrainer keeps."""
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*args, **more)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        found = super()._get_train_sampler(train_dataset)
        if isinstance(found, LengthGroupedSampler):
            found = ByLength(found.batch_size, lengths=found.lengths)
            found.seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        return found


def arguments(given: Mapping[str, Any], task: Task, folder: Path, examples: int, longest: int) -> dict[str, Any]:
    """What TrainingArguments get: the user's choices; the others follow from the task, the data and the machine."""
    config, gpus = task.base.config, _gpus(given)
    fitting = min(task.batch, max(4, 2 ** math.floor(math.log2(max(1, examples / UPDATES_PER_EPOCH)))))
    processes = max(gpus, PartialState().num_processes)  # Trainer has all GPUs in one process, where torchrun has not
    rows = max(1, fitting // processes if gpus else min(fitting // processes, TOKENS_ON_CPU // longest))
    rows = given.get("per_device_train_batch_size", rows)
    lr = SMALL_LR if config.hidden_size <= SMALL else T5_LR if "t5" in config.model_type else task.lr
    lr *= math.sqrt(fitting / task.batch) if config.hidden_size > SMALL else 1
    evaluating = given.get("eval_strategy", "epoch")
    saving = given.get("save_strategy", evaluating)
    chosen = {
        "output_dir": str(folder),
        "per_device_train_batch_size": rows,
        "per_device_eval_batch_size": rows,
        "gradient_accumulation_steps": max(1, fitting // (rows * processes)),
        "learning_rate": float(f"{lr:.1g}"),
        "num_train_epochs": task.epochs,
        "warmup_steps": 0.1,  # of all
        "weight_decay": 0.01,
        "label_smoothing_factor": 0.1 if isinstance(task, Summaries) else 0.0,
        "bf16": gpus > 0 and torch.cuda.is_bf16_supported(including_emulation=False),
        "eval_strategy": evaluating,
        "save_strategy": saving,
        "save_steps": given.get("eval_steps", 500),
        "save_total_limit": 2,  # with one, Trainer removes the last one at the end
        "load_best_model_at_end": "no" not in (evaluating, saving),
        "metric_for_best_model": task.best,
        "greater_is_better": task.best != "loss",
        "train_sampling_strategy": "group_by_length",
        "logging_strategy": "epoch",
        "seed": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": gpus > 0,
    }
    return {**chosen, **given}


def _gpus(given: Mapping[str, Any]) -> int:
    """GPUs of this machine that are trained on."""
    return 0 if given.get("use_cpu") else torch.cuda.device_count()


def expect(task: Task, model: nn.Module, train: list[dict], chosen: dict[str, Any]) -> float:
    """Seconds that a training takes, by a batch of the longest document; what memory does not hold halves the batch."""
    gpus, longest = _gpus(chosen), max(train, key=lambda one: len(one["input_ids"]))
    device = torch.device("cuda" if gpus else "cpu")
    row = {name: value for name, value in longest.items() if name != "places"}
    model.to(device)
    adam = torch.empty(2 * sum(one.numel() for one in model.parameters()), device=device)  # the memory of its moments
    while True:
        rows = chosen["per_device_train_batch_size"]
        batch = {name: value.to(device) for name, value in task.collate(model)([dict(row)] * rows).items()}
        try:
            for _ in range(2):  # the first pass is slow
                begin = time.perf_counter()
                with torch.autocast(device.type, torch.bfloat16, enabled=gpus > 0):
                    model(**batch).loss.backward()
                torch.cuda.synchronize() if gpus else None
            break
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
            chosen["per_device_train_batch_size"] = chosen["per_device_eval_batch_size"] = rows // 2
            chosen["gradient_accumulation_steps"] *= 2
    seconds = (time.perf_counter() - begin) / (rows * len(longest["input_ids"]))  # of a token
    del adam
    model.zero_grad(set_to_none=True)
    epochs = chosen["num_train_epochs"]
    if chosen.get("max_steps", -1) > 0:
        epochs = min(epochs, chosen["max_steps"] * rows * chosen["gradient_accumulation_steps"] / len(train))
    tokens = epochs * sum(len(one["input_ids"]) for one in train)
    return BESIDE * seconds * tokens / max(1, gpus)


def train(
    task: Task,
    model: nn.Module,
    features: Mapping[str, list[dict]],
    chosen: Mapping[str, Any],
    folder: Path,
    split: str,
) -> None:
    """Train and evaluate a model; the folder has it, its predictions and, when whole, RESULT."""
    splits, writes = task.data.splits, isinstance(task, Summaries)  # validation has the loss of what is written alone
    used = Seq2SeqTrainingArguments(**chosen)

    def figures(outputs: Any) -> dict[str, float]:
        found = task.figures(splits["valid"], task.decode(splits["valid"], features["valid"], outputs.predictions))
        return {
            name: float(value)
            for name, value in found.items()
            if isinstance(value, float) and not name.startswith(HIDDEN)
        }

    trainer = ReproducibleTrainer(
        model,
        used,
        train_dataset=features["train"],
        eval_dataset=features["valid"],
        data_collator=task.collate(model),
        compute_metrics=None if writes else figures,
        preprocess_logits_for_metrics=None if writes else task.smaller,
        callbacks=[Stopping()],
    )
    trainer.model_accepts_loss_kwargs = False  # losses here are means; Trainer would add them over processes and parts
    if last := _last_whole(Path(used.output_dir)):
        print(f"  going on from {last}", flush=True)
    ran = trainer.train(resume_from_checkpoint=last).metrics["train_runtime"]
    trainer.compute_metrics = None  # which are validation's
    used.predict_with_generate = writes

    def predict(name: str) -> list:
        return task.decode(splits[name], features[name], trainer.predict(features[name]).predictions)

    task.tune(model, predict)
    print(f"  predicting {len(splits[split]):,} examples of {split} …", flush=True)
    predictions = predict(split)
    used.output_dir = str(folder / "model")
    trainer.save_model()
    if not PartialState().is_main_process:
        return
    task.tokenizer.model_max_length = task.length
    task.tokenizer.save_pretrained(used.output_dir)
    Path(used.output_dir, "training_args.bin").unlink(missing_ok=True)
    source = source_of(task.base.name, local_files_only=True)
    origin, known = source.get("base_model", Path(task.base.name).name), {"license": source.get("license", "unknown")}
    known |= {"model_name": folder.parents[1].name, "dataset": Path(task.data.name).stem}
    trainer.create_model_card(finetuned_from=origin, **known)
    if "base_model" not in source:  # nor is it on the Hub
        card = Path(used.output_dir, CARD)
        text = card.read_text(encoding="utf-8").replace(f"base_model: {origin}\n", "")
        card.write_text(text.replace(f"(https://huggingface.co/{origin})", ""), encoding="utf-8")
    write_lines(folder / f"{split}.predictions.jsonl", task.lines(splits[split], predictions))
    state, before = trainer.state, int(last.rpartition("-")[2]) if last else 0
    result = {"tokens": task.length, "best": state.best_metric, "figures": task.evaluate(split, predictions)}
    if state.global_step > before:
        result["seconds"] = ran * state.global_step / (state.global_step - before)
    write_lines(folder / RESULT, [json.dumps(result, indent=1)])


def _last_whole(folder: Path) -> str | None:
    """The last checkpoint that was written to its end; others, of killed processes, are removed."""
    while folder.is_dir() and (last := get_last_checkpoint(folder)):
        try:
            json.loads(Path(last, STATE).read_text(encoding="utf-8"))
            return last
        except (OSError, ValueError):
            shutil.rmtree(last)
    return None
