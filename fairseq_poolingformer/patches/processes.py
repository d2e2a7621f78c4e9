"""Several processes: ``torchrun``, training on CPUs, and ``--context-parallel-size``."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.patches.interruption import pass_signals_on

logger = logging.getLogger(__name__)

# torchrun sets these for each process it starts.
TORCHRUN_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK")


def under_torchrun() -> bool:
    """Whether torchrun has started this process."""
    return all(name in os.environ for name in TORCHRUN_VARIABLES)


def make_torchrun_one_training(original: Callable, cfg: Any, main: Callable, **kwargs: Any) -> Any:
    """Make the processes that ``torchrun`` starts one training, on GPUs and on CPUs.

    fairseq reads torchrun's variables only when ``--distributed-world-size`` is larger than 1, and its default is the
    number of visible GPUs. So with one GPU per process, or on a CPU, N processes silently run N trainings and overwrite
    one another's checkpoints. On a CPU, the variables also lead to a division by zero GPUs, NCCL is chosen, and with an
    explicit init method no process is started at all, with exit status 0.

    A command that reads a model with ``--path`` (generation, scoring) is left as it is, unless the world size is
    given: fairseq-eval-lm prints each process's share of the data as if it were the whole.
    """
    distributed = cfg.distributed_training
    on_cpu = cfg.common.cpu or not torch.cuda.is_available()
    if not cfg.common.tpu and not distributed.pipeline_model_parallel:
        training = cfg.common_eval.path is None
        if distributed.distributed_init_method is None and (training or distributed.distributed_world_size > 1):
            _join_launcher(distributed, on_cpu)
        if on_cpu:
            _prepare_cpu(distributed)
    was_initialized = torch.distributed.is_initialized()
    starts_processes = distributed.distributed_world_size > 1 and not distributed.distributed_no_spawn
    with pass_signals_on() if starts_processes else contextlib.nullcontext():
        done = original(cfg, main, **kwargs)
    if torch.distributed.is_initialized() and not was_initialized:
        _leave_group()
    return done


def _leave_group() -> None:
    # fairseq leaves the group to the end of the process, where gloo aborts when another process was quicker
    from fairseq.distributed import utils

    torch.distributed.destroy_process_group()
    if hasattr(utils.get_global_group, "_global_group"):
        del utils.get_global_group._global_group  # fairseq's copy of the destroyed group


def _join_launcher(distributed: Any, on_cpu: bool) -> None:
    if under_torchrun():
        _join_torchrun(distributed, on_cpu)
    elif on_cpu and distributed.distributed_world_size > 1 and "SLURM_PROCID" in os.environ:
        _join_slurm_on_cpu(distributed)


def torchrun_device(on_cpu: bool) -> int:
    """The number of the device for this process among those that torchrun has started."""
    local_rank = int(os.environ["LOCAL_RANK"])
    if not on_cpu and local_rank >= torch.cuda.device_count():
        raise UsageError(
            f"torchrun started a process of local rank {local_rank}, but {torch.cuda.device_count()} GPUs are visible. "
            "Give torchrun an --nproc_per_node of at most the number of GPUs, or compute with --cpu."
        )
    return 0 if on_cpu else local_rank


def _join_torchrun(distributed: Any, on_cpu: bool) -> None:
    device = torchrun_device(on_cpu)
    distributed.distributed_init_method = "env://"
    distributed.distributed_world_size = int(os.environ["WORLD_SIZE"])
    distributed.distributed_rank = int(os.environ["RANK"])
    distributed.device_id = device
    distributed.distributed_no_spawn = True
    logger.info(f"started by torchrun: process {distributed.distributed_rank} of {distributed.distributed_world_size}")


def _join_slurm_on_cpu(distributed: Any) -> None:
    # fairseq derives ranks from the number of GPUs of a node, which is 0 here, and sets a CUDA device
    from fairseq.distributed import utils

    if distributed.distributed_port <= 0:
        raise UsageError(
            "several processes under SLURM need a port on which to meet: give --distributed-port, for instance 12345"
        )
    utils._infer_slurm_init(distributed, None)
    distributed.distributed_world_size = int(os.environ["SLURM_NTASKS"])
    distributed.distributed_rank = int(os.environ["SLURM_PROCID"])
    distributed.device_id = 0
    distributed.distributed_no_spawn = True


def _prepare_cpu(distributed: Any) -> None:
    if distributed.distributed_init_method is None and distributed.distributed_world_size == 1:
        return
    if distributed.distributed_init_method is None or not distributed.distributed_no_spawn:
        raise UsageError(
            f"fairseq starts one process per GPU and none for a CPU, so --distributed-world-size "
            f"{distributed.distributed_world_size} would train nothing. Start the processes with torchrun "
            "--nproc_per_node=N -m fairseq_cli.train …, without --distributed-world-size; or start each yourself with "
            "--distributed-no-spawn, --distributed-rank and --distributed-init-method."
        )
    if distributed.distributed_backend == "nccl":
        distributed.distributed_backend = "gloo"  # nccl, fairseq's default, moves data between GPUs only


def gather_objects_without_cuda(original: Callable, data: Any, group: Any = None, max_size: int = 16384) -> list:
    """Gather Python objects among processes that have no CUDA device.

    fairseq sends them through a CUDA buffer. Criterions gather logging outputs in this way when they cannot be summed,
    and fairseq-validate always does.
    """
    from fairseq import utils
    from fairseq.distributed import utils as distributed_utils

    group = distributed_utils.get_global_group() if group is None else group
    if distributed_utils.use_xla() or torch.distributed.get_backend(group) != "gloo":
        return original(data, group=group, max_size=max_size)
    gathered = [None] * distributed_utils.get_world_size(group)
    torch.distributed.all_gather_object(gathered, utils.move_to_cpu(data), group=group)
    return gathered


def wrap_model_on_any_device(original: Callable, module: torch.nn.Module, **kwargs: Any) -> torch.nn.Module:
    """Let ``--ddp-backend pytorch_ddp``, the default, wrap a model on the CPU.

    fairseq always names a CUDA device, and torch refuses that for a module without CUDA parameters.
    """
    if all(param.device.type == "cpu" for param in module.parameters()):
        kwargs.update(device_ids=None, output_device=None)
    return original(module, **kwargs)


# --context-parallel-size: neighbouring processes share each batch, each computes a part of its documents


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
