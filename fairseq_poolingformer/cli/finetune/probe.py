"""Measures memory and time of a training by some updates: ``python -m fairseq_poolingformer.cli.finetune.probe``."""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fairseq_poolingformer.cli.finetune.choices import SHORTEST, Choices
from fairseq_poolingformer.cli.finetune.processes import duration, follow
from fairseq_poolingformer.command import load_fairseq
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.json_file import read_json_file

USABLE = 0.8  # of the free memory: lengths vary, and so do others' needs


@dataclass(frozen=True)
class Measured:
    """What some updates took."""

    available: int  # bytes that a device has for a training
    fixed: float  # bytes that it needs without any token of a batch
    per_token: float  # bytes for each one
    longest: int  # tokens of the longest example
    tokens: int  # of all examples
    seconds_per_token: float  # of the largest batch that was measured
    updates: int  # that were measured
    fits: bool  # whether the longest example did

    def rows(self, most: int) -> int:
        """The largest power of two of the longest examples that a device has memory for; 0 where not even one fits."""
        rows = 1
        while rows * 2 <= most and self._fits(rows * 2):
            rows *= 2
        return rows if self.fits else 0

    def _fits(self, rows: int) -> bool:
        return self.fixed + self.per_token * rows * self.longest <= USABLE * self.available


def measure(flags: Sequence[str]) -> Measured:
    """Train on batches of growing size, the longest example last, as long as the next one is expected to fit."""
    load_fairseq()
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.trainer import Trainer

    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), list(flags)))
    on_gpu = torch.cuda.is_available() and not cfg.common.cpu
    available = torch.cuda.mem_get_info()[0] if on_gpu else available_bytes()
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    task.load_dataset(cfg.dataset.train_subset)
    dataset = task.dataset(cfg.dataset.train_subset)
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    sizes = sorted((int(dataset.num_tokens(int(number))), int(number)) for number in dataset.ordered_indices())
    if not sizes:
        raise ValueError("nothing to train on: no example has what is to be learned in the part that is read")
    longest = sizes[-1][0]
    found: list[tuple[int, int, float]] = []  # tokens, bytes, seconds
    fits = True
    for batch in ([sizes[0]], [sizes[len(sizes) // 2]], sizes[-1:], sizes[-2:]):
        tokens = batch[-1][0] * len(batch)
        if found and tokens <= found[-1][0]:
            continue
        if len(found) > 1 and sum(_line(found)[i] * (1, tokens)[i] for i in (0, 1)) > USABLE * available:
            fits = len(batch) > 1
            break
        try:
            begin = time.perf_counter()
            trainer.train_step([dataset.collater([dataset[number] for _, number in batch])])
            found.append((tokens, _peak(on_gpu), time.perf_counter() - begin))
        except torch.OutOfMemoryError:
            fits = len(batch) > 1
            break
    if not found:
        return Measured(available, 0, 0, longest, 0, 0, 0, False)
    fixed, per_token = _line(found)
    tokens = sum(size for size, _ in sizes)
    return Measured(available, fixed, per_token, longest, tokens, found[-1][2] / found[-1][0], len(found), fits)


def _line(found: Sequence[tuple[int, int, float]]) -> tuple[float, float]:
    """Bytes without any token, and for each, by the first and the last measurement."""
    (first, least, _), (last, most, _) = found[0], found[-1]
    slope = (most - least) / (last - first) if last > first else most / last
    return least - slope * first if last > first else 0.0, slope


def _peak(on_gpu: bool) -> int:
    if on_gpu:
        return torch.cuda.max_memory_reserved()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def available_bytes() -> int:
    """The memory that this process may take: the machine's free memory, or less where a container has a bound."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return 2**33
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    group = Path("/sys/fs/cgroup")
    try:
        bound = int((group / "memory.max").read_text())
        return min(free, bound - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no bound: "max"
        return free


def fit(
    chosen: Choices, flags: Callable[[Choices], list[str]], folder: Path, given: Mapping[str, Any], examples: int
) -> Choices:
    """Find how many examples memory holds, by some updates in a process of their own; print the time to expect.

    Where it does not hold one, layers are computed twice; where that is too much, fewer segments or tokens are read.
    What the user has given stays.
    """
    while True:
        print(f"measuring some updates with up to {chosen.length:,} tokens …", flush=True)
        trial = flags(replace(chosen, device_batch=1, devices=1))
        result = folder / "measured.json"
        follow("the measurement", [sys.executable, "-m", __name__, str(result), *trial], folder / "measured.log")
        found = Measured(**read_json_file(result))
        rows = chosen.device_batch or found.rows(max(1, chosen.batch // chosen.devices))
        if rows:
            break
        lacking = f"the {found.available / 2**30:.1f} GiB that are free do not hold {found.longest:,} tokens"
        if not chosen.checkpoint_activations:
            print(f"{lacking}: layers are computed twice")
            chosen = replace(chosen, checkpoint_activations=True)
        elif chosen.max_segments != 1 and not given["max_segments"] and found.longest > chosen.length:
            segments = min(math.ceil(found.longest / chosen.length), chosen.max_segments or sys.maxsize) // 2
            chosen = replace(chosen, max_segments=segments)
            print(f"{lacking}: {segments} segments of a document are read in training")
        elif chosen.length > SHORTEST and not given["length"]:
            chosen = replace(chosen, length=chosen.length // 2)
            print(f"{lacking}: {chosen.length:,} are read")
        else:
            raise ValueError(f"{lacking}; give a smaller --length, or take a smaller model")
    passes = min(chosen.epochs, chosen.total(examples) * chosen.batch / examples)
    seconds = found.seconds_per_token * found.tokens * passes / chosen.devices
    print(f"the training takes about {duration(seconds)}, as measured on {found.updates} updates")
    return replace(chosen, device_batch=rows)


def main(arguments: Sequence[str]) -> None:
    """``RESULT FLAG …``: write what was measured."""
    try:
        found = measure(arguments[1:])
    except ValueError as error:
        sys.exit(f"error: {error}")
    write_lines(Path(arguments[0]), [json.dumps(asdict(found))])


if __name__ == "__main__":
    main(sys.argv[1:])
