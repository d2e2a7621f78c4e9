"""One training by transformers' Trainer: its arguments, what it costs, its progress, how it stops and goes on."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import SequentialSampler
from transformers import PrinterCallback, Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import get_last_checkpoint, set_seed

from fairseq_poolingformer.cli.finetune.stopping import Stopping
from fairseq_poolingformer.cli.finetune.tasks import Summaries, Task

UPDATES_PER_EPOCH = 50  # that a batch leaves, where the documents are few
SMALL, SMALL_LR = 256, 5e-4  # models up to this width learn at a high rate only
T5_LR = 3e-4
TOKENS_ON_CPU = 8192  # of a batch, at a time
USABLE = 0.85  # of a GPU's memory
PAUSE = 20.0  # seconds between two lines
STATE = "trainer_state.json"  # the last file that Trainer writes of a checkpoint


class Watch(TrainerCallback):
    """Prints how a training goes on, and ends it where that is asked for."""

    def __init__(self, stopping: Stopping, best: str) -> None:
        self._stopping, self._best = stopping, best
        self._begin: tuple[int, float] | None = None
        self._shown = self._ended = 0.0

    def seconds(self, state: Any) -> float | None:
        """Of all updates, by those that were watched; None where there were none."""
        done = state.global_step - self._begin[0] if self._begin else 0
        return (self._ended - self._begin[1]) / done * state.global_step if done else None

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Note when the first update begins."""
        self._begin = self._begin or (state.global_step, time.monotonic())

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Save and end, where that is asked of any process."""
        self._ended = time.monotonic()
        asked = self._stopping.is_asked
        if args.world_size > 1:
            flag = torch.tensor(float(asked), device=args.device)
            torch.distributed.all_reduce(flag)
            asked = bool(flag)
        if asked:
            self._stopping.is_asked = control.should_training_stop = True
            control.should_save = not float(state.epoch).is_integer()  # else the epoch's end saves

    def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Do not evaluate an epoch that has not ended, which the next run ends."""
        if self._stopping.is_asked and not float(state.epoch).is_integer():
            control.should_evaluate = control.should_save = False

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **more: Any) -> None:
        """Print a line now and then."""
        now, (before, begin) = time.monotonic(), self._begin or (0, 0.0)
        if "loss" not in logs or not state.is_world_process_zero or now - self._shown < PAUSE:
            return
        self._shown, done = now, state.global_step
        left = (now - begin) / max(1, done - before) * (state.max_steps - done)
        print(
            f"  update {done:,} of {state.max_steps:,}: loss {float(logs['loss']):.3f}, about {duration(left)} left",
            flush=True,
        )

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Mapping[str, float], **more: Any) -> None:
        """Print the figures of validation."""
        if state.is_world_process_zero:
            names = dict.fromkeys(("loss", self._best))
            figures = [f"{name} {metrics[f'eval_{name}']:.4g}" for name in names if f"eval_{name}" in metrics]
            print(f"  epoch {state.epoch:.3g}, validation: {', '.join(figures)}", flush=True)


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 100:
        return f"{max(1, round(seconds))} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


def arguments(given: Mapping[str, Any], task: Task, folder: Path, examples: int, longest: int) -> dict[str, Any]:
    """What TrainingArguments get: the user's choices; the others follow from the task, the data and the machine."""
    config, on_gpu = task.base.config, torch.cuda.is_available() and not given.get("use_cpu")
    fitting = min(task.batch, max(4, 2 ** math.floor(math.log2(max(1, examples / UPDATES_PER_EPOCH)))))
    processes = max(1, torch.cuda.device_count()) if on_gpu else 1
    rows = fitting if on_gpu else max(1, min(fitting, TOKENS_ON_CPU // longest))
    rows = given.get("per_device_train_batch_size", rows)
    lr = SMALL_LR if config.hidden_size <= SMALL else T5_LR if "t5" in config.model_type else task.lr
    lr *= math.sqrt(fitting / task.batch) if config.hidden_size > SMALL else 1
    evaluating = given.get("eval_strategy", "epoch")
    saving = given.get("save_strategy", evaluating)
    chosen = {
        "output_dir": str(folder),
        "per_device_train_batch_size": rows,
        "per_device_eval_batch_size": given.get("per_device_eval_batch_size", rows),
        "gradient_accumulation_steps": max(1, fitting // (rows * processes)),
        "learning_rate": float(f"{lr:.1g}"),
        "num_train_epochs": task.epochs,
        "warmup_steps": 0.1,  # of all
        "weight_decay": 0.01,
        "label_smoothing_factor": 0.1 if isinstance(task, Summaries) else 0.0,
        "bf16": on_gpu and torch.cuda.is_bf16_supported(including_emulation=False),
        "eval_strategy": evaluating,
        "save_strategy": saving,
        "save_steps": given.get("eval_steps", 500),
        "save_total_limit": 2,  # with one, Trainer removes the last one at the end
        "load_best_model_at_end": "no" not in (evaluating, saving),
        "metric_for_best_model": task.best,
        "greater_is_better": task.best != "loss",
        "train_sampling_strategy": "group_by_length",
        "label_names": task.label_names,
        "logging_steps": 10,
        "seed": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": on_gpu,
    }
    return {**chosen, **given}


def measure(model: nn.Module, batch: Mapping[str, torch.Tensor], device: torch.device) -> tuple[float, int]:
    """Seconds of one pass forward and back, and bytes of a GPU beside the model; the model stays as it is."""
    model.to(device)
    held = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    inputs = {name: value.to(device) for name, value in batch.items()}
    begin = time.perf_counter()
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        model(**inputs).loss.backward()
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    peak = torch.cuda.max_memory_allocated() - held if device.type == "cuda" else 0
    model.zero_grad(set_to_none=True)
    return seconds, peak


def rows_in_memory(model: nn.Module, peak: int, most: int) -> int:
    """How many of the longest examples a GPU holds, a power of two, given the bytes that one takes; 0 for none."""
    parameters = sum(one.numel() for one in model.parameters())
    free = USABLE * torch.cuda.mem_get_info()[1] - 16 * parameters  # weights, gradients, Adam
    fitting = int(free / max(1, peak - 4 * parameters))
    return min(most, 2 ** (fitting.bit_length() - 1)) if fitting else 0


class ByLength(LengthGroupedSampler):
    """transformers' sampler, whose order follows from the seed and the epoch, so that one can go on within an epoch."""

    seed = epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Trainer names each epoch before it begins."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.generator = torch.Generator().manual_seed(2**20 * self.seed + self.epoch)
        return super().__iter__()


class ReproducibleTrainer(Seq2SeqTrainer):
    """Trainer with this sampler; what is predicted keeps its order, where Trainer groups it by length, too."""

    def _get_eval_sampler(self, eval_dataset: Any) -> SequentialSampler:
        return SequentialSampler(eval_dataset)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        found = super()._get_train_sampler(train_dataset)
        if isinstance(found, LengthGroupedSampler):
            found = ByLength(found.batch_size, lengths=found.lengths)
            found.seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        return found


class Training:
    """A training and its checkpoints in a folder."""

    def __init__(
        self, task: Task, model: nn.Module, given: Mapping[str, Any], train: list[dict], stopping: Stopping
    ) -> None:
        self._task, self._stopping = task, stopping
        self._valid = task.data.splits["valid"]
        self._features = task.features(self._valid)
        self._is_searching = isinstance(task, Summaries)  # validation has their loss alone
        self.arguments = Seq2SeqTrainingArguments(**given)
        set_seed(self.arguments.seed)
        self._watch = Watch(stopping, task.best)
        self.trainer = ReproducibleTrainer(
            model,
            self.arguments,
            train_dataset=train,
            eval_dataset=self._features,
            data_collator=task.collator(model),
            compute_metrics=None if self._is_searching else self._figures,
            preprocess_logits_for_metrics=None if self._is_searching else task.smaller,
            callbacks=[self._watch],
        )
        self.trainer.remove_callback(PrinterCallback)

    def _figures(self, outputs: Any) -> dict[str, float]:
        predictions = self._task.decode(self._valid, self._features, outputs.predictions)
        return {name: float(value) for name, value in self._task.figures(self._valid, predictions).items()}

    def run(self) -> float | None:
        """Train to the end, from the last whole checkpoint on, and keep the best model; return seconds of it all."""
        last = _last_whole(Path(self.arguments.output_dir))
        if last:
            print(f"  going on from {last}", flush=True)
        self._stopping.is_training = True
        try:
            self.trainer.train(resume_from_checkpoint=last)
        finally:
            self._stopping.is_training = False
        self._stopping.check()
        return self._watch.seconds(self.trainer.state)

    def predict(self, examples: Sequence[Any]) -> list:
        """The predictions of examples by the trained model."""
        self.trainer.compute_metrics = None  # which are validation's
        self.arguments.predict_with_generate = self._is_searching
        features = self._features if examples is self._valid else self._task.features(examples)
        outputs = self.trainer.predict(features).predictions
        return self._task.decode(examples, features, outputs)


def _last_whole(folder: Path) -> str | None:
    """The last checkpoint that was written to its end; others, of killed processes, are removed."""
    while folder.is_dir() and (last := get_last_checkpoint(folder)):
        try:
            json.loads(Path(last, STATE).read_text(encoding="utf-8"))
            return last
        except (OSError, ValueError):
            shutil.rmtree(last)
    return None
