"""Half precision: on a CPU, and continued from the float32 parameters."""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.patches.patching import replace

logger = logging.getLogger(__name__)

SCALER = "loss_scaler"  # in the optimizer's state: when the loss scale has changed
COUNTS = ("_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")  # of fairseq's scaler


def apply() -> None:
    """Patch half-precision optimizers, and what checkpoints hold of them."""
    from fairseq.optim import AMPOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
    from fairseq.trainer import Trainer

    replace(FP16Optimizer, "build_optimizer", unflattened_on_cpu)
    replace(Trainer, "state_dict", saving_float32)
    replace(Trainer, "load_checkpoint", continuing_from_float32)
    for optimizer in (FP16Optimizer, MemoryEfficientFP16Optimizer, AMPOptimizer):
        replace(optimizer, "state_dict", saving_the_scaler)
        replace(optimizer, "load_state_dict", continuing_the_scaler)


def unflattened_on_cpu(original: Callable) -> Callable:
    """Let ``--fp16`` train on a CPU, by turning on ``--fp16-no-flatten-grads`` there.

    fairseq keeps the float32 copy of the parameters in one flat tensor per CUDA device, and asks CUDA which device that
    is even when the parameters are on the CPU. Copies that are not flat give the same updates.
    """

    def build_optimizer(cls: type, cfg: Any, params: Iterable, **kwargs: Any) -> Any:
        from omegaconf import open_dict

        params = list(params)
        on_cpu = all(param.device.type == "cpu" for param in params)
        if on_cpu and not cfg.common.bf16 and not cfg.common.fp16_no_flatten_grads:
            logger.info("parameters are on the CPU: --fp16 uses --fp16-no-flatten-grads")
            with open_dict(cfg.common):
                cfg.common.fp16_no_flatten_grads = True
        return original(cls, cfg, params, **kwargs)

    return build_optimizer


def saving_float32(original: Callable) -> Callable:
    """Save the float32 parameters of ``--fp16`` and ``--bf16``, which updates are added to.

    fairseq saves the half-precision copies, in float32 as well: a file of the same size, but a training that is
    continued from it has lost what the updates of some thousand steps have added below half precision.
    """

    def state_dict(self: Any) -> dict[str, Any]:
        state = original(self)
        for name, parameter in _float32_parameters(self):
            state["model"][name] = parameter.detach()
        return state

    return state_dict


def continuing_from_float32(original: Callable) -> Callable:
    """Give the optimizer of ``--fp16`` and ``--bf16`` the float32 parameters of the checkpoint."""

    def load_checkpoint(self: Any, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any) -> Any:
        if reset_optimizer or not (self.cfg.common.fp16 or self.cfg.common.bf16):
            return original(self, filename, reset_optimizer, *args, **kwargs)
        model, read = self.model, {}

        def load_state_dict(state: dict[str, Any], *arguments: Any, **named: Any) -> Any:
            loaded = type(model).load_state_dict(model, state, *arguments, **named)
            read.update(state)  # fairseq lets go of it
            return loaded

        model.load_state_dict = load_state_dict
        try:
            extra_state = original(self, filename, reset_optimizer, *args, **kwargs)
        finally:
            del model.load_state_dict
        for name, parameter in _float32_parameters(self):
            if name in read and read[name].shape == parameter.shape:
                parameter.data.copy_(read[name])
        return extra_state

    return load_checkpoint


def _float32_parameters(trainer: Any) -> Iterator[tuple[str, Tensor]]:
    """The parameters that an optimizer of half precision updates, by all their names."""
    from fairseq.optim import FP16Optimizer

    optimizer = trainer.optimizer
    if not isinstance(optimizer, FP16Optimizer):
        return
    halves = [half for half in optimizer.fp16_params if half.requires_grad]
    float32 = dict(zip(map(id, halves), _unflattened(optimizer.fp32_params, halves), strict=True))
    for name, half in trainer.get_model().named_parameters(remove_duplicate=False):
        if id(half) in float32:
            yield name, float32[id(half)]


def _unflattened(parameters: Any, like: list[Tensor]) -> list[Tensor]:
    """The parameters one by one: of one device they may be a single row, in a dictionary."""
    if not isinstance(parameters, dict):
        return list(parameters)
    (row,) = parameters.values()
    parts = row.data.split([half.numel() for half in like])
    return [part.view_as(half) for part, half in zip(parts, like, strict=True)]


def saving_the_scaler(original: Callable) -> Callable:
    """Save when the loss scale of ``--fp16`` or ``--amp`` has changed, which decides when it does so again."""

    def state_dict(self: Any) -> dict[str, Any]:
        state = original(self)
        if isinstance(self.scaler, torch.amp.GradScaler):
            state[SCALER] = self.scaler.state_dict()
        elif self.scaler is not None:
            state[SCALER] = {name: getattr(self.scaler, name) for name in COUNTS}
        return state

    return state_dict


def continuing_the_scaler(original: Callable) -> Callable:
    """Count on from there; an older checkpoint has no counts."""

    def load_state_dict(self: Any, state_dict: dict[str, Any], optimizer_overrides: Any = None) -> None:
        saved = state_dict.get(SCALER)
        original(self, {name: value for name, value in state_dict.items() if name != SCALER}, optimizer_overrides)
        if not saved or self.scaler is None:
            return
        if isinstance(self.scaler, torch.amp.GradScaler):
            if self.scaler.is_enabled():
                self.scaler.load_state_dict(saved)
        else:
            vars(self.scaler).update({name: saved[name] for name in COUNTS if name in saved})

    return load_state_dict
