"""``--context-parallel-size``: neighbouring processes share each batch, and each computes a part of its documents."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fairseq_poolingformer.command import UsageError


def divide_documents_of_trainer(
    original: Callable, self: Any, cfg: Any, task: Any, model: Any, criterion: Any, quantizer: Any = None
) -> None:
    """Divide the documents of a Trainer's task, where the task's options ask for it.

    All else stays as fairseq does it for processes with batches of their own, because each returns its share of the
    loss, of the sample size and of what is logged.
    """
    size = getattr(cfg.task, "context_parallel_size", 1)
    if size != 1:
        check(cfg, size)
        task.divide(model, criterion, ranks(size))
    return original(self, cfg, task, model, criterion, quantizer)


def raise_errors_of_memory(original: Callable, self: Any, sample: Any, raise_oom: bool = False) -> Any:
    """End where a device's memory is full, in a training that divides documents.

    fairseq leaves out such a batch, or validates it again, in one process alone; those that share it would wait.
    """
    return original(self, sample, raise_oom=raise_oom or getattr(self.task, "ranks", None) is not None)


def refuse_to_divide(original: Callable, cfg: Any, *arguments: Any, **named: Any) -> Any:
    """Refuse ``--context-parallel-size`` in commands of fairseq that have the option and divide nothing."""
    if getattr(cfg.task, "context_parallel_size", 1) != 1:
        raise UsageError(
            "--context-parallel-size is an option of fairseq-train and fairseq-generate: leave it out here"
        )
    return original(cfg, *arguments, **named)


def check(cfg: Any, size: int) -> None:
    """Refuse options that do not go with divided documents."""
    check_size(size, cfg.distributed_training.distributed_world_size)
    distributed, common = cfg.distributed_training, cfg.common
    refused = [
        (cfg.optimization.use_bmuf, "--use-bmuf"),
        (distributed.ddp_backend == "slowmo", "--ddp-backend slowmo"),
        (distributed.pipeline_model_parallel, "--pipeline-model-parallel"),
        (common.model_parallel_size > 1, "--model-parallel-size"),
        (common.tpu, "--tpu"),
    ]
    for asked, what in refused:
        if asked:
            raise UsageError(f"--context-parallel-size {size} does not go with {what}")


def check_size(size: int, processes: int) -> None:
    """Refuse sizes of groups that do not divide the number of processes."""
    if size < 1 or processes % size:
        raise UsageError(
            f"--context-parallel-size {size} divides {processes} process{'es' * (processes > 1)} into no whole number "
            "of groups: start a multiple of it with torchrun --nproc_per_node, or choose another size"
        )


@contextlib.contextmanager
def joined(size: int, on_cpu: bool, **meeting: Any) -> Iterator[Any]:
    """Join processes for the block, in which :func:`ranks` share documents; None where each has its own."""
    check_size(size, meeting["world_size"])
    if size == 1:
        yield None
        return
    torch.distributed.init_process_group("gloo" if on_cpu else "nccl", **meeting)
    yield ranks(size)
    torch.distributed.destroy_process_group()


def ranks(size: int) -> Any:
    """This process's group of ``size`` neighbours; all processes call this together."""
    from fairseq_poolingformer.attention.sharding import GroupRanks  # few trainings need it

    rank, processes = torch.distributed.get_rank(), torch.distributed.get_world_size()
    neighbours = [list(range(first, first + size)) for first in range(0, processes, size)]
    groups = [torch.distributed.new_group(group) for group in neighbours]
    return GroupRanks(groups[rank // size])
