"""``--ddp-backend fully_sharded`` by PyTorch's own FSDP: each process holds a share of every parameter.

fairseq's option needs fairscale, which is no longer maintained. Here a process keeps its rows of each parameter, of its
gradient and of the optimizer's state; each layer gathers its parameters when it computes. Checkpoints are whole: they
are the files that a training without the option writes, and are resumed with or without it, on any number of processes.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn


def _asks_for_sharding(trainer: Any) -> bool:
    return trainer.cfg.distributed_training.ddp_backend == "fully_sharded" and trainer.data_parallel_world_size > 1


def wrap_nothing(original: Callable, model: nn.Module | None = None, **unused: Any) -> nn.Module:
    """Leave a model as it is, where fairseq would wrap it by fairscale."""
    return model


def have_no_block_for_wrapping(original: Callable, cfg: Any) -> nullcontext:
    """Do nothing where fairseq would prepare fairscale."""
    return nullcontext()


def never_take_fairscales_branches(original: Callable, trainer: Any) -> bool:
    """Say that a Trainer is not sharded, as fairscale means it."""
    return False


def wrap_no_sharded_model(original: Callable, trainer: Any) -> bool:
    """Say that fairseq need not wrap a model that is sharded."""
    return original(trainer) and not _asks_for_sharding(trainer)


def gather_state_in_all_processes(original: Callable, trainer: Any) -> bool:
    """Ask all processes for the state of a sharded model, of which each has a share."""
    return _asks_for_sharding(trainer)


def shard_model_of_trainer(
    original: Callable, self: Any, cfg: Any, task: Any, model: nn.Module, criterion: nn.Module, quantizer: Any = None
) -> None:
    """Shard the model of a Trainer: every layer by itself, and what is left of the model together.

    With ``--bf16`` the layers compute in bfloat16 from float32 shares, and gradients are summed in float32.
    """
    if cfg.distributed_training.ddp_backend != "fully_sharded" or cfg.distributed_training.distributed_world_size < 2:
        return original(self, cfg, task, model, criterion, quantizer)
    check(cfg, task, criterion)
    dtype = torch.bfloat16 if cfg.common.bf16 else None
    cfg.common.bf16 = False  # else fairseq would round the parameters themselves, and keep a second copy of all
    original(self, cfg, task, model, criterion, quantizer)
    shard(model, self.device.type, dtype)
    return None


def check(cfg: Any, task: Any, criterion: nn.Module) -> None:
    """Refuse the options that do not go with sharded parameters.

    Args:
        cfg: fairseq's configuration.
        task: the task, which may generate while it validates.
        criterion: the criterion.

    Raises:
        ValueError: one of them does not; the message says what to use instead.
    """
    distributed, common = cfg.distributed_training, cfg.common
    ddp = "use the default --ddp-backend"
    refused = [
        (common.fp16 or common.amp, "--fp16 and --amp", f"use --bf16, or {ddp}"),
        (common.memory_efficient_bf16, "--memory-efficient-bf16", "use --bf16"),
        (distributed.zero_sharding != "none", "--zero-sharding", "leave it out: the optimizer is sharded as well"),
        (distributed.use_sharded_state, "--use-sharded-state", "leave it out: checkpoints are whole"),
        (distributed.cpu_offload, "--cpu-offload", f"leave it out, or {ddp}"),
        (cfg.optimization.use_bmuf, "--use-bmuf", ddp),
        (cfg.ema.store_ema, "--store-ema", ddp),
        (any(True for _ in criterion.parameters()), "a criterion with parameters", ddp),
        (getattr(task, "sequence_generator", None) is not None, "generating while validating", "validate by the loss"),
    ]
    for asked, what, remedy in refused:
        if asked:
            raise ValueError(f"--ddp-backend fully_sharded does not go with {what}: {remedy}")


def shard(model: nn.Module, device: str, compute_dtype: torch.dtype | None = None) -> None:
    """Shard a model's parameters among all processes, in place.

    Args:
        model: a model of fairseq, whole and the same in every process.
        device: ``"cuda"`` or ``"cpu"``.
        compute_dtype: what its layers compute in; None for the parameters' own.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    for parameter in model.parameters():  # fairseq seeds all processes alike, but tasks may draw numbers of their own
        torch.distributed.broadcast(parameter.data, src=0)
    # the model keeps its own parameters from forward to backward, so nothing can be gathered too late
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(device, (torch.distributed.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=compute_dtype, reduce_dtype=torch.float32)
    for layer in layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    # criterions apply the output layer after the model's forward, so its parameters stay until the backward
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    model.register_load_state_dict_pre_hook(_share_of_parameters)


def layers(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules of the outermost lists of modules, but for those that share a parameter with another module.

    Args:
        model: the model.
    """
    uses: dict[int, int] = {}
    for _, parameter in model.named_parameters(remove_duplicate=False):
        uses[id(parameter)] = uses.get(id(parameter), 0) + 1
    yield from _layers(model, uses)


def _layers(module: nn.Module, uses: dict[int, int]) -> Iterator[nn.Module]:
    for child in module.children():
        if not isinstance(child, nn.ModuleList):
            yield from _layers(child, uses)
            continue
        for layer in child:
            own = [id(parameter) for _, parameter in layer.named_parameters(remove_duplicate=False)]
            if own and all(own.count(number) == uses[number] for number in own):
                yield layer


def _share_of_parameters(module: nn.Module, state_dict: dict[str, Tensor], prefix: str, *_: Any) -> None:
    from torch.distributed.tensor import DTensor

    for name, parameter in module.named_parameters(remove_duplicate=False):
        value = state_dict.get(prefix + name)
        if value is not None and isinstance(parameter, DTensor) and value.shape == parameter.shape:
            state_dict[prefix + name] = _share(value, parameter)


def _share(value: Tensor, parameter: Any) -> Tensor:
    """This process's share of a tensor that every process has, placed as a DTensor is."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if isinstance(value, DTensor):
        return value
    value = value.to(parameter.device)
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)


def load_share_of_optimizer_state(original: Callable, self: Any) -> None:
    """Let a sharded optimizer load a whole state, of which each process takes its share."""
    original(self)
    if not _asks_for_sharding(self):
        return
    if not self._optimizer.supports_flat_params:
        name = type(self._optimizer).__name__
        raise ValueError(
            f"--ddp-backend fully_sharded needs an optimizer that treats every number alike, which {name} does "
            "not: use --optimizer fused_adamw or adam"
        )
    self._optimizer.optimizer.register_load_state_dict_pre_hook(_share_of_optimizer)


def _share_of_optimizer(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {}
    for number, parameter in zip(numbers, parameters, strict=True):
        state[number] = {
            name: _share(value, parameter) if torch.is_tensor(value) and value.shape == parameter.shape else value
            for name, value in state_dict["state"].get(number, {}).items()
        }
    return {**state_dict, "state": state}


def clip_by_norm_of_all_shares(original: Callable, self: Any, clip_norm: float) -> Tensor:
    """Clip by the norm of the whole gradient, of which each process has a share."""
    if not _asks_for_sharding(self):
        return original(self, clip_norm)
    shares = [parameter.grad.to_local() for parameter in self.optimizer.params if parameter.grad is not None]
    squares = torch.stack([share.float().square().sum() for share in shares]).sum()
    torch.distributed.all_reduce(squares, group=self.data_parallel_process_group)
    norm = squares.sqrt()
    if clip_norm > 0:
        torch._foreach_mul_(shares, (clip_norm / (norm + 1e-6)).clamp(max=1))
    return norm


def save_whole_tensors(original: Callable, self: Any) -> dict[str, Any]:
    """Save whole tensors. All processes gather them, and the first one keeps them, on the CPU."""
    state = original(self)
    return _whole(state, self.is_data_parallel_master) if _asks_for_sharding(self) else state


def _whole(value: Any, keep: bool) -> Any:
    from torch.distributed.tensor import DTensor  # not above: its import takes 0.7 s, for this option alone

    if isinstance(value, DTensor):
        whole = value.full_tensor()
        return whole.detach().cpu() if keep else None
    if isinstance(value, dict):
        return type(value)((key, _whole(entry, keep)) for key, entry in value.items())
    return [_whole(entry, keep) for entry in value] if isinstance(value, list) else value
