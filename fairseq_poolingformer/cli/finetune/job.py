"""All trainings of a job, by transformers' Trainer: one, or one of each system that is compared; and baselines.

A training's arguments are chosen once, before its first update. SIGTERM ends it with a checkpoint, where it goes on.
"""

from __future__ import annotations

import argparse
import errno
import json
import math
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from safetensors import SafetensorError
from torch import nn
from torch.utils.data import SequentialSampler
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments
from transformers.modelcard import TrainingSummary, parse_log_history
from transformers.trainer_jit_checkpoint import JITCheckpointCallback
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import get_last_checkpoint, set_seed

from fairseq_poolingformer.cli.finetune.base import SHORT, SUMMARIES, SYSTEMS, TWO_LEVELS, Base
from fairseq_poolingformer.cli.finetune.data import Data
from fairseq_poolingformer.cli.finetune.results import HIDDEN, leave
from fairseq_poolingformer.cli.finetune.tasks import TASKS, Summaries, Task
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.huggingface import opening
from fairseq_poolingformer.huggingface.card import source_of
from fairseq_poolingformer.text.atomic_write import disk_errors, write_lines
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.weights.card import CARD

RESULT = "result.json"
SAMPLE = 2000  # documents whose tokens are counted
FEW_LONGER = 0.01  # of the documents, for which no model is made long
UPDATES_PER_EPOCH = 50  # that a batch leaves, where the documents are few
SMALL, SMALL_LR = 256, 5e-4  # models up to this width learn at a high rate only
T5_LR = 3e-4
TOKENS_ON_CPU = 8192  # of a batch, at a time
STATE = "trainer_state.json"  # the last file that Trainer writes of a checkpoint


def check_options(task: str, options: Mapping[str, Any]) -> None:
    """Refuse options that the task cannot use, before any work."""
    kind = TASKS[task]
    if _metric(kind, options) not in kind.metrics:
        metric = options["metric_for_best_model"]
        raise UsageError(f"--metric_for_best_model {metric}: for {task} it must be one of {', '.join(kind.metrics)}")
    if task != SUMMARIES and (writing := [name for name in options if name.startswith("generation_")]):
        raise UsageError(f"--{writing[0]}: is for summarization, and this is {task}")
    try:
        Seq2SeqTrainingArguments(**{"output_dir": "-", **_strategies(options), **options})
    except (ValueError, TypeError, ImportError) as error:
        raise UsageError(" ".join(str(error).split())) from error


def _metric(kind: type[Task], options: Mapping[str, Any]) -> str:
    """The figure on validation that chooses the checkpoint."""
    return (options.get("metric_for_best_model") or kind.metrics[0]).removeprefix("eval_")


def _strategies(options: Mapping[str, Any]) -> dict[str, Any]:
    evaluating = options.get("eval_strategy", "epoch")
    saving = options.get("save_strategy", evaluating)
    return {
        "eval_strategy": evaluating,
        "save_strategy": saving,
        "save_steps": options.get("eval_steps", 500),
        "load_best_model_at_end": "no" not in (evaluating, saving),
    }


def train_all(data: Data, base: Base, args: argparse.Namespace, options: Mapping[str, Any], folder: Path) -> Any:
    """Train what is not trained yet, and leave the best of it in the folder above; return the results."""
    kind = TASKS[data.task]
    sizes = kind(base, 0).sizes(data.splits["train"][:SAMPLE])
    length = base.reads(int(np.quantile(sizes, 1 - FEW_LONGER, method="lower")), args.length, args.keep_short)
    systems = _systems(args.compare, base, length)
    results: dict[str, Any] = {}
    for system in systems:
        reads = min(length, base.length) if system == SHORT else length
        task = kind(base, reads, data.labels, data.splits["train"])
        print(f"\n{system}: {base.name} reads {task.length:,} tokens", task.cut(sizes), sep="\n  ", flush=True)
        if not (folder / system / RESULT).is_file():
            _train(task, data, system, options, folder / system)
        PartialState().wait_for_everyone()
        results[system] = read_json_file(folder / system / RESULT)
    examples = data.splits[data.evaluated]
    for name, predictions in task.baselines(examples).items():
        results[name] = {"figures": task.evaluate(examples, predictions)}
    sign = -1 if _metric(kind, options) == "loss" else 1
    chosen = max(systems, key=lambda system: sign * (results[system]["best"] or 0))
    result = {"split": data.evaluated, "examples": len(examples), "system": chosen, "systems": results}
    result["text_column"] = data.text
    if PartialState().is_main_process:
        read = f"The model reads {results[chosen]['tokens']:,} tokens; the rest of longer documents is cut off."
        columns = f"Columns: {data.text} to {data.target}."
        leave(folder.parent, folder / chosen / "model", result, f"{columns}\n{read}")
    return result


def _systems(asked: str | None, base: Base, length: int) -> list[str]:
    if asked is None:
        return [TWO_LEVELS if base.is_long or length > base.length else SHORT]
    names = asked.split(",")
    if unknown := [name for name in names if name not in SYSTEMS]:
        raise ValueError(f"--compare {unknown[0]}: must be some of {','.join(SYSTEMS)}")
    if base.is_long or not base.long_class:
        reason = "has two levels already; give the short model that it was made from" if base.is_long else "stays short"
        raise ValueError(f"--compare: {base.name} {reason}" + (f": {base.why_not_long}" if not base.is_long else ""))
    return list(dict.fromkeys(names))


def _train(task: Task, data: Data, system: str, options: Mapping[str, Any], folder: Path) -> None:
    """Train one system; a full disk or memory is said in a sentence."""
    set_seed(options.get("seed", 1))
    model = task.start(system, options)
    features = {split: task.features(data.splits[split]) for split in {"train", "valid", data.evaluated}}
    opening.check_ids([inputs for split in features.values() for inputs in split], model, task.base.name)
    longest = max(len(inputs["input_ids"]) for inputs in features["train"])
    chosen = arguments(options, task, folder / "checkpoints", len(features["train"]), longest)
    try:
        with disk_errors(folder, folder / "-"):
            train(task, data, model, features, chosen, folder)
    except SafetensorError as error:
        raise OSError(errno.EIO, f"could not be written ({error})", str(folder)) from error
    except RuntimeError as error:  # after transformers has halved the batch down to one
        if "No executable batch size" not in str(error) and not isinstance(error, torch.OutOfMemoryError):
            raise
        raise ValueError(
            f"no memory for {task.length:,} tokens; give --gradient_checkpointing true or a smaller --length, with "
            "another --output-folder"
        ) from error


class ByLength(LengthGroupedSampler):
    """transformers' sampler, whose order follows from the seed and the epoch, so that one can go on within an epoch."""

    seed = 0

    def set_epoch(self, epoch: int) -> None:
        """Trainer names each epoch before it begins."""
        self.generator = torch.Generator().manual_seed(2**20 * self.seed + epoch)


class SaveAfterUpdates(JITCheckpointCallback):
    """transformers' checkpoint on SIGTERM, at the end of an update or epoch, where a training resumes bit for bit."""

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """Wait for the end of the update: the random numbers of a new epoch are drawn already."""

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Wait for the end of the update: it would be repeated with other dropout."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save, or let Trainer save, and stop."""
        if not control.should_save:
            super().on_step_end(args, state, control, **kwargs)
        elif self.jit_manager.is_checkpoint_requested:
            control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave a whole epoch to Trainer; one that was stopped within has its checkpoint."""
        if self.jit_manager.is_checkpoint_requested:
            control.should_training_stop = True
        elif control.should_training_stop and state.epoch % 1:
            control.should_evaluate = control.should_save = False


class ReproducibleTrainer(Seq2SeqTrainer):
    """Trainer with this sampler; what is predicted keeps its order, and its number, whatever processes there are."""

    def _get_eval_sampler(self, eval_dataset: Any) -> SequentialSampler:
        return SequentialSampler(eval_dataset)

    def evaluation_loop(self, *args: Any, **more: Any) -> Any:
        """Leave out what fills the last batch of several processes, which Seq2SeqTrainer keeps."""
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*args, **more)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        sampler = super()._get_train_sampler(train_dataset)
        if isinstance(sampler, LengthGroupedSampler):
            sampler = ByLength(sampler.batch_size, lengths=sampler.lengths)
            sampler.seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        return sampler


def arguments(options: Mapping[str, Any], task: Task, folder: Path, examples: int, longest: int) -> dict[str, Any]:
    """TrainingArguments: user options over defaults derived from task, data and hardware."""
    config, gpus = task.base.config, 0 if options.get("use_cpu") else torch.cuda.device_count()
    fitting = min(task.batch, max(4, 2 ** math.floor(math.log2(max(1, examples / UPDATES_PER_EPOCH)))))
    processes = max(gpus, PartialState().num_processes)  # Trainer has all GPUs in one process, where torchrun has not
    rows = max(1, fitting // processes if gpus else min(fitting // processes, TOKENS_ON_CPU // longest))
    rows = options.get("per_device_train_batch_size", rows)
    lr = SMALL_LR if config.hidden_size <= SMALL else T5_LR if "t5" in config.model_type else task.lr
    lr *= math.sqrt(fitting / task.batch) if config.hidden_size > SMALL else 1
    metric = _metric(type(task), options)
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
        **_strategies(options),
        "save_total_limit": 2,  # with one, Trainer removes the last one at the end
        "metric_for_best_model": metric,
        "greater_is_better": metric != "loss",
        "train_sampling_strategy": "group_by_length",
        "logging_strategy": "epoch",
        "seed": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "auto_find_batch_size": True,  # halved where memory is full
        "enable_jit_checkpoint": True,  # on SIGTERM
        "dataloader_pin_memory": gpus > 0,
    }
    return {**chosen, **options}


def train(
    task: Task,
    data: Data,
    model: nn.Module,
    features: Mapping[str, list[dict]],
    chosen: Mapping[str, Any],
    folder: Path,
) -> None:
    """Train and evaluate a model; the folder has it, its predictions and, when whole, RESULT."""
    split, writes = data.evaluated, isinstance(task, Summaries)
    used = Seq2SeqTrainingArguments(**chosen)
    used.predict_with_generate = writes and used.metric_for_best_model != "loss"  # else validation has the loss alone

    def figures(outputs: Any) -> dict[str, float]:
        values = task.evaluate(data.splits["valid"], task.decode(_logits(outputs.predictions)))
        return {name: value["mean"] for name, value in values.items() if not name.startswith(HIDDEN)}

    trainer = ReproducibleTrainer(
        model,
        used,
        train_dataset=features["train"],
        eval_dataset=features["valid"],
        data_collator=task.collate(model),
        compute_metrics=None if writes and not used.predict_with_generate else figures,
        preprocess_logits_for_metrics=None if writes else lambda logits, _: _logits(logits),
    )
    if on_sigterm := trainer.pop_callback(JITCheckpointCallback):
        callback = SaveAfterUpdates()
        callback.trainer, callback.jit_manager = trainer, on_sigterm.jit_manager
        trainer.add_callback(callback)
    trainer.model_accepts_loss_kwargs = False  # losses here are means; Trainer would add them over processes and parts
    if last := _last_whole(Path(used.output_dir)):
        print(f"  going on from {last}", flush=True)
    ran = trainer.train(resume_from_checkpoint=last).metrics["train_runtime"]
    state = trainer.state
    if state.global_step < state.max_steps:
        print("stopped, with a checkpoint; the same command goes on", flush=True)
        signal.raise_signal(signal.SIGTERM)
    trainer.compute_metrics = None  # which are validation's
    used.predict_with_generate = writes
    print(f"  predicting {len(features[split]):,} examples of {split} …", flush=True)
    predictions = task.decode(_logits(trainer.predict(features[split]).predictions))
    used.output_dir = str(folder / "model")
    trainer.save_model()
    if not PartialState().is_main_process:
        return
    task.tokenizer.model_max_length = task.length
    task.tokenizer.save_pretrained(used.output_dir)
    Path(used.output_dir, "training_args.bin").unlink(missing_ok=True)
    reached = task.evaluate(data.splits[split], predictions)
    _write_card(trainer, task, data, folder, {} if split == "valid" else reached)
    write_lines(folder / f"{split}.predictions.jsonl", task.lines(data.splits[split], predictions))
    before = int(last.rpartition("-")[2]) if last else 0
    result = {"tokens": task.length, "best": state.best_metric, "figures": reached}
    if state.global_step > before:
        result["seconds"] = ran * state.global_step / (state.global_step - before)
    write_lines(folder / RESULT, [json.dumps(result, indent=1)])


def _logits(outputs: Any) -> Any:
    return outputs[0] if isinstance(outputs, tuple) else outputs  # BART's kin return their states, too


def _write_card(trainer: Any, task: Task, data: Data, folder: Path, tested: Mapping[str, Mapping[str, float]]) -> None:
    """Write Trainer's card with the figures of the model that is kept, which need not be the last epoch's."""
    source = source_of(task.base.name, local_files_only=True)
    origin, known = source.get("base_model", Path(task.base.name).name), {"license": source.get("license", "unknown")}
    known |= {"model_name": folder.parents[1].name, "dataset": Path(data.name).stem}
    summary = TrainingSummary.from_trainer(trainer, finetuned_from=origin, **known)
    kept, log = trainer.state.best_global_step, trainer.state.log_history
    if entry := next((logged for logged in log if logged.get("step") == kept and "eval_loss" in logged), None):
        summary.eval_results = parse_log_history([{"train_runtime": 0}, entry])[2]
    figures = {f"Test {name}": value["mean"] for name, value in tested.items() if not name.startswith(HIDDEN)}
    summary.eval_results = {**(summary.eval_results or {}), **figures}
    card = summary.to_model_card()
    if "base_model" not in source:  # nor is it on the Hub
        card = card.replace(f"base_model: {origin}\n", "").replace(f"(https://huggingface.co/{origin})", "")
    Path(trainer.args.output_dir, CARD).write_text(card, encoding="utf-8")


def _last_whole(folder: Path) -> str | None:
    """The last checkpoint that was written to its end; others, of killed processes, are removed."""
    while folder.is_dir() and (last := get_last_checkpoint(folder)):
        try:
            json.loads(Path(last, STATE).read_text(encoding="utf-8"))
            return last
        except (OSError, ValueError):
            shutil.rmtree(last)
    return None
