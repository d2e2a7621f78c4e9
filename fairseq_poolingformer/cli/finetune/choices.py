"""How a model is trained where nothing else is said: one row a task, and what follows from data and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fairseq_poolingformer
from fairseq_poolingformer.cli.finetune.start import Start
from fairseq_poolingformer.preprocess.pipeline.findings import lengths_of
from fairseq_poolingformer.preprocess.pipeline.report import Made
from fairseq_poolingformer.settings import flag
from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.labels import AMOUNT, ONE, SEVERAL, read_problem_type
from fairseq_poolingformer.text.sequences import read_sizes
from fairseq_poolingformer.text.table import aligned
from fairseq_poolingformer.weights.flags import LONG

USER_DIR = str(Path(fairseq_poolingformer.__file__).parent)
UPDATES_PER_EPOCH = 50  # that a batch leaves, where the documents are few
SMALL_LR = 5e-4  # of models whose Start.is_small
WARMUP, MOST_WARMUP = 0.1, 1000  # share of the updates, and the most of them
SHORTEST = 512  # tokens that a training is cut to where memory is short
SAVE_UPDATES = 1000


@dataclass(frozen=True)
class Recipe:
    """How a task is trained; the numbers are those of run_scripts' experiments."""

    criterion: tuple[str, ...]  # with its options
    batch: int  # the most examples of an update; the learning rate is for that many
    lr: float
    epochs: int
    options: tuple[str, ...]  # of the optimizer
    best: tuple[str, ...] = ()  # which checkpoint is the best one; the least loss without


_OPTIONS = ("--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-6", "--weight-decay", "0.01", "--clip-norm", "1.0")
OTHERS = Recipe(("document_task",), 32, 3e-5, 5, _OPTIONS)  # of tasks over documents that RECIPES does not name
ONE_SEGMENT = ("long_summarization", "question_answering")  # whose documents are cut at the length, or cut otherwise
NOT_TRAINED = ("long_masked_lm", "char_lm")  # tasks of pretraining
_F1, _ACCURACY = (
    ("--best-checkpoint-metric", figure, "--maximize-best-checkpoint-metric") for figure in ("f1", "accuracy")
)
RECIPES = {
    "long_summarization": Recipe(
        ("linear_cross_entropy", "--label-smoothing", "0.1"),
        128,
        2e-4,
        10,
        ("--adam-betas", "(0.9, 0.999)", "--adam-eps", "1e-8", "--weight-decay", "0.01", "--clip-norm", "0.1"),
    ),
    "document_classification": Recipe(("document_task",), 32, 3e-5, 15, _OPTIONS, _ACCURACY),
    "token_labels": Recipe(("document_task",), 32, 3e-5, 15, _OPTIONS, _F1),
    "wikihop": Recipe(("document_task",), 32, 3e-5, 15, _OPTIONS, _ACCURACY),
    "question_answering": Recipe(("question_answering",), 64, 2e-5, 2, _OPTIONS),
}


@dataclass(frozen=True)
class Lengths:
    """The sizes of a data folder."""

    inputs: np.ndarray  # (n,) tokens of each training example
    longest_output: int  # tokens of the longest summary; 0 where there are none
    problem: str = ONE  # how many labels an example has

    @classmethod
    def of(cls, folder: Path, layout: Any) -> Lengths:
        """Read them from a finished data folder."""
        data = DataFolder(folder, layout)
        outputs = [int(read_sizes(data.array("train", name)).max()) + 1 for name in layout.outputs]
        inputs = lengths_of(Made(data, "", (), (), {}), "train")
        return cls(inputs, max(outputs, default=0), read_problem_type(folder, layout))


@dataclass(frozen=True)
class Choices:
    """What is decided before a training: the flags of the command, whose help says what they are.

    Of epochs and updates the first to come ends the training; 0 is for no updates and for all segments.
    """

    length: int
    target_length: int
    batch: int
    device_batch: int
    devices: int
    epochs: int
    updates: int
    warmup: int
    lr: float
    precision: str
    device: str
    checkpoint_activations: bool
    seed: int
    max_segments: int = 0

    def total(self, examples: int) -> int:
        """The number of updates."""
        by_epochs = self.epochs * math.ceil(examples / self.batch)
        return min(by_epochs, self.updates) if self.updates else by_epochs

    def as_text(self, task: str, learned: str, counts: Mapping[str, int], lengths: Lengths) -> str:
        """The choices, for people; ``learned`` says what from what, ``counts`` the examples of each split."""
        cut = 100 * float(np.mean(lengths.inputs > self.length))
        read = f"the first {self.max_segments}" if self.max_segments else "all"
        how = "are cut (--length)" if task in ONE_SEGMENT else f"are read in segments, {read} (--max-segments)"
        longer = f"; {cut:.1f} % of the training examples have more, and {how}" if cut else ""
        recomputed = ", layers computed twice" if self.checkpoint_activations else ""
        examples = len(lengths.inputs)
        total = self.total(examples)
        epochs = f"{total / math.ceil(examples / self.batch):.3g} epochs"
        epochs += f" (--epochs), fewer than --updates {self.updates}" if self.updates > total else ""
        rows = [
            ["task", f"{task} ({learned})"],
            ["examples", ", ".join(f"{count:,} {split}" for split, count in counts.items())],
            ["tokens", f"{self.length:,}{longer}"],
            ["update", f"{self.batch} examples, {self.device_batch} at a time{recomputed}"],
            ["training", f"{total:,} updates, {epochs}; rate {self.lr}, {self.warmup} to warm up"],
            ["device", f"{self.devices} × {self.device}, {self.precision}"],
        ]
        return aligned(rows, left=2)


def choose(given: Mapping[str, Any], start: Start, task: str, lengths: Lengths) -> Choices:
    """Decide everything but what memory decides; ``given`` is what the user says, None where nothing."""
    recipe, examples = RECIPES.get(task, OTHERS), len(lengths.inputs)
    needed = int(lengths.inputs.max())
    length = given["length"] or max(start.longest, min(LONG, _power(needed, math.ceil)))
    fitting = min(recipe.batch, max(4, _power(examples / UPDATES_PER_EPOCH, math.floor)))
    batch = given["batch"] or fitting
    usual = SMALL_LR if start.is_small else recipe.lr * math.sqrt(batch / recipe.batch)
    device = given["device"] or ("cuda" if torch.cuda.is_available() else "cpu")
    chosen = Choices(
        length=length,
        target_length=given["target_length"] or min(start.longest_target, lengths.longest_output),
        batch=batch,
        device_batch=given["device_batch"] or 0,
        devices=torch.cuda.device_count() if device == "cuda" else 1,
        epochs=given["epochs"] or recipe.epochs,
        updates=given["updates"] or 0,
        warmup=0,
        lr=given["lr"] or float(f"{usual:.1g}"),
        precision=given["precision"] or _precision(device),
        device=device,
        checkpoint_activations=bool(given["checkpoint_activations"]),
        seed=given["seed"],
        max_segments=1 if task in ONE_SEGMENT else given["max_segments"] or 0,
    )
    total = chosen.total(examples)
    warmup = given["warmup"] if given["warmup"] is not None else min(MOST_WARMUP, math.ceil(WARMUP * total))
    return replace(chosen, warmup=warmup)


def _power(number: float, rounded: Any) -> int:
    """The power of two next to a number, above or below it."""
    return 2 ** rounded(math.log2(max(number, 1)))


def _precision(device: str) -> str:
    if device == "cpu":
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"


def training_flags(
    chosen: Choices, start: Start, task: str, data: Path, folder: Path, lengths: Lengths, further: Sequence[str]
) -> list[str]:
    """The arguments of ``fairseq-train``, which writes into ``folder``; ``further``, the user's, come last and win."""
    recipe, total = RECIPES.get(task, OTHERS), chosen.total(len(lengths.inputs))
    best = {SEVERAL: _F1, AMOUNT: ()}.get(lengths.problem, recipe.best)
    flags = [
        *(str(data), "--user-dir", USER_DIR, "--task", task),
        *start.flags(chosen.length),
        *("--lr", str(chosen.lr), "--max-epoch", str(chosen.epochs)),
        *(("--max-update", str(chosen.updates)) if chosen.updates else ()),
        *("--batch-size", str(chosen.device_batch), "--required-batch-size-multiple", "1"),
        *("--update-freq", str(max(1, chosen.batch // (chosen.device_batch * chosen.devices)))),
        *("--num-workers", "1", "--seed", str(chosen.seed), "--distributed-world-size", str(chosen.devices)),
        *("--ddp-backend", "legacy_ddp", *best),
        *("--save-dir", str(folder / "checkpoints"), "--no-epoch-checkpoints"),
        *("--save-interval-updates", str(SAVE_UPDATES), "--keep-interval-updates", "1"),
        *("--log-format", "json", "--log-interval", str(max(1, total // 100)), "--log-file", str(folder / "train.log")),
    ]
    decay = ("polynomial_decay", "--warmup-updates", str(chosen.warmup), "--total-num-update", str(total))
    parts = {"--criterion": recipe.criterion, "--optimizer": ("fused_adamw", *recipe.options), "--lr-scheduler": decay}
    for name, values in parts.items():
        flags += [name, *values] if name not in further else []  # the values belong to what the user replaces
    if task == "long_summarization":
        flags += [flag("max_target_length"), str(chosen.target_length)]
    elif task not in ONE_SEGMENT and chosen.max_segments:
        flags += ["--max-segments", str(chosen.max_segments)]
    if task == "triviaqa":
        flags += ["--max-document-positions", "0"]  # prediction reads whole documents
    flags += ["--cpu"] * (chosen.device == "cpu") + [f"--{chosen.precision}"] * (chosen.precision != "fp32")
    flags += ["--checkpoint-activations"] * chosen.checkpoint_activations
    return [*flags, *further]
