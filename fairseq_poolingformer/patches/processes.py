"""Several processes: ``torchrun``, training on CPUs, and those that read batches."""

import contextlib
import logging
import os
from collections.abc import Callable
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
    """Make the processes that ``torchrun`` starts one training, on GPUs and on CPUs."""
    # fairseq reads torchrun's variables only for a --distributed-world-size above 1, by default the visible GPUs: with
    # one a process, or none, N processes run N trainings. With --path, a command stays as it is unless the size is
    # given: fairseq-eval-lm prints each process's share as the whole
    distributed = cfg.distributed_training
    on_cpu = cfg.common.cpu or not torch.cuda.is_available()
    if not cfg.common.tpu and not distributed.pipeline_model_parallel:
        training = cfg.common_eval.path is None
        is_joined = training or distributed.distributed_world_size > 1
        if is_joined and distributed.distributed_init_method is None and under_torchrun():
            _join_torchrun(distributed, on_cpu)
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
    """Gather Python objects, such as logging outputs, among processes without fairseq's CUDA buffers."""
    from fairseq import utils
    from fairseq.distributed import utils as distributed_utils

    group = distributed_utils.get_global_group() if group is None else group
    if distributed_utils.use_xla() or torch.distributed.get_backend(group) != "gloo":
        return original(data, group=group, max_size=max_size)
    gathered = [None] * distributed_utils.get_world_size(group)
    torch.distributed.all_gather_object(gathered, utils.move_to_cpu(data), group=group)
    return gathered


def wrap_model_on_any_device(original: Callable, module: torch.nn.Module, **kwargs: Any) -> torch.nn.Module:
    """Wrap a model on the CPU, too, with ``--ddp-backend pytorch_ddp``, for which fairseq names a CUDA device."""
    if all(param.device.type == "cpu" for param in module.parameters()):
        kwargs.update(device_ids=None, output_device=None)
    return original(module, **kwargs)


def end_workers_with_their_epoch(original: Callable, self: Any, *args: Any, **kwargs: Any) -> None:
    """End the processes that read data with their epoch: fairseq makes others for the next, and leaves these behind."""
    original(self, *args, **kwargs)
    self.persistent_workers = False


def release_after_the_last_item(original: Callable, self: Any) -> Any:
    """Release the source of an iterator, and so its processes, when its last item has come."""
    item = original(self)
    if not self.has_next():
        self._itr = iter(())
    return item
