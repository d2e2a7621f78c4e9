"""``fairseq-generate`` on several processes: ``--num-shards`` and ``torchrun``."""

import contextlib
import hashlib
import io
import os
import sys
import zipfile
from argparse import Namespace
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.patches.processes import torchrun_device, under_torchrun
from fairseq_poolingformer.patches.resuming import is_of_plugin
from fairseq_poolingformer.patching import set_within
from fairseq_poolingformer.text.data_folder import digest_of

KEY = "hypotheses of batch {}"  # in the store
LONGEST_WAIT = timedelta(hours=2)  # for one batch of another process, which includes loading its model

# (number of the batch, fairseq's inference_step, the task and what else fairseq gives that function) -> hypotheses
Step = Callable[..., list[list[dict[str, Any]]]]


def divide_batches(original: Callable, cfg: Any) -> Any:
    """Make ``--num-shards`` and ``torchrun`` divide the batches of a split among processes."""
    # fairseq-generate reads neither, so every process generates the whole split. A shard K of N has every N-th batch
    # from K on; of torchrun's processes, rank 0 prints what all leave in the store through which they meet
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    cfg = convert_namespace_to_omegaconf(cfg) if isinstance(cfg, Namespace) else cfg
    shards, shard = cfg.dataset.num_shards, cfg.dataset.shard_id
    if not 0 <= shard < shards:
        raise UsageError(f"--shard-id {shard} with --num-shards {shards}: give one from 0 to {shards - 1}")
    if not under_torchrun():
        return _generate(original, cfg, shards, shard, generate_alone)
    on_cpu = cfg.common.cpu or not torch.cuda.is_available()
    device = torchrun_device(on_cpu)
    if not on_cpu:
        torch.cuda.set_device(device)
    store, rank, number = next(torch.distributed.rendezvous("env://"))
    if rank == 0:
        return _generate(original, cfg, shards, shard, step_of_the_first(store, number))
    cfg.common_eval.results_path, cfg.common_eval.quiet, cfg.common.log_format = None, True, "none"
    with contextlib.redirect_stdout(io.StringIO()):
        return _generate(original, cfg, shards * number, shard + rank * shards, step_of_a_helper(store, rank, number))


def generate_alone(number: int, inference_step: Callable, task: Any, *arguments: Any, **named: Any) -> list:
    """Generate a batch; the :data:`Step` of a process that shares nothing."""
    return inference_step(task, *arguments, **named)


def step_of_a_helper(store: Any, rank: int, processes: int) -> Step:
    """Make the :data:`Step` of a process other than 0: generate a batch and leave its hypotheses in the store."""

    def step(
        number: int, inference_step: Callable, task: Any, generator: Any, models: Any, sample: dict, *rest, **named
    ):
        from fairseq import utils

        hypotheses = inference_step(task, generator, models, sample, *rest, **named)
        data = io.BytesIO()
        torch.save({"id": sample["id"].tolist(), "hypotheses": utils.move_to_cpu(hypotheses)}, data)
        store.set(KEY.format(rank + number * processes), data.getvalue())
        return hypotheses

    return step


def step_of_the_first(store: Any, processes: int) -> Step:
    """Make the :data:`Step` of process 0: generate its own batches and take those of the others from the store."""

    def step(
        number: int, inference_step: Callable, task: Any, generator: Any, models: Any, sample: dict, *rest, **named
    ):
        rank, key = number % processes, KEY.format(number)
        if rank == 0:
            return inference_step(task, generator, models, sample, *rest, **named)
        try:
            store.wait([key], LONGEST_WAIT)
        except torch.distributed.DistStoreError as error:
            raise TimeoutError(f"process {rank} has not generated batch {number} within {LONGEST_WAIT}") from error
        batch = torch.load(io.BytesIO(store.get(key)), weights_only=True)
        store.delete_key(key)
        if batch["id"] != sample["id"].tolist():
            raise ValueError(
                f"batch {number} of process {rank} has other documents than here: start every process with the same "
                "command and the same data folder"
            )
        return batch["hypotheses"]

    return step


def name_checkpoints(original: Callable, cfg: Any, output_file: Any) -> Any:
    """Print, before what fairseq-generate prints, from which checkpoints it comes; ``poolingformer score`` compares."""
    from fairseq.tasks import TASK_REGISTRY
    from fairseq.utils import split_paths

    task = TASK_REGISTRY.get(getattr(cfg.task, "_name", None))
    paths = split_paths(cfg.common_eval.path)
    if task is not None and is_of_plugin(task) and all(map(os.path.isfile, paths)):
        print(f"Checkpoint {cfg.common_eval.path}, checksum {':'.join(map(checksum, paths))}", file=output_file)
    return original(cfg, output_file)


def checksum(path: str) -> str:
    """A number by which checkpoints differ, from the checksums that a zip archive holds of its records."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            records = [(record.CRC, record.file_size) for record in archive.infolist()]
        if any(crc for crc, _ in records):
            return hashlib.sha256(repr(records).encode()).hexdigest()[:16]
    return digest_of(Path(path))[:16]


def _generate(original: Callable, cfg: Any, shards: int, shard: int, step: Step) -> Any:
    """Run fairseq-generate on every ``shards``-th batch from batch ``shard`` on, each by ``step``."""
    from fairseq import scoring
    from fairseq.tasks import FairseqTask

    distributed = cfg.distributed_training  # fairseq-generate divides its batches by these two
    distributed.distributed_world_size, distributed.distributed_rank = shards, shard
    inference_step, build_scorer, batches = FairseqTask.inference_step, scoring.build_scorer, 0

    def next_step(task: Any, *arguments: Any, **named: Any) -> list:
        nonlocal batches
        batches += 1
        return step(batches - 1, inference_step, task, *arguments, **named)

    def labelled_scorer(*arguments: Any) -> Any:
        scorer = build_scorer(*arguments)
        describe = scorer.result_string
        scorer.result_string = lambda: (
            f"{describe()}\nThis is shard {shard} of {shards} alone: poolingformer score scores the outputs of all."
        )
        return scorer

    with (
        set_within(FairseqTask, "inference_step", next_step),
        set_within(scoring, "build_scorer", labelled_scorer if shards > 1 else build_scorer),
    ):
        try:
            return original(cfg)
        except ZeroDivisionError:
            if batches:
                raise
            if shards == 1:
                raise UsageError(
                    f"--gen-subset {cfg.dataset.gen_subset}: the split has no example; name another one"
                ) from None
    # fairseq has divided by the time that generation took
    result = f"shard {shard} of {shards} has no examples"
    line = f"Generate {cfg.dataset.gen_subset} with beam={cfg.generation.beam}: {result}\n"
    if cfg.common_eval.results_path is None:
        sys.stdout.write(line)
    else:
        path = os.path.join(cfg.common_eval.results_path, f"generate-{cfg.dataset.gen_subset}.txt")
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)
    return None
