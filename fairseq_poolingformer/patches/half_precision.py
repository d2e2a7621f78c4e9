"""Checkpoints of ``--fp16`` and ``--bf16`` hold the names and the values of float32.

fairseq saves the model's half-precision tensors, without what updates added below their precision, and rounds what it
reads. Here the model holds float32 tensors while its modules save or load their ``state_dict``.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_poolingformer.patches import resuming

FROZEN = "frozen_float32"  # of a trainer: id of a tensor that no optimizer changes -> its values as they were read


def save_in_float32(original: Callable, self: Any) -> dict[str, Any]:
    """Save the optimizer's float32 parameters, and those that no optimizer changes as they were read."""
    if not resuming.is_ours(self.task):
        return original(self)
    model = self.get_model()
    values = {id(half): float32.detach() for half, float32 in optimized_parameters(self)}
    frozen = getattr(self, FROZEN, {})
    for half in _half_tensors(model):
        value = frozen.get(id(half))
        if value is not None and torch.equal(half, value.to(half)):
            values[id(half)] = value.to(half.device)
    with _holding(model, values):
        return original(self)


def load_in_float32(original: Callable, self: Any, *arguments: Any, **named: Any) -> Any:
    """Load a checkpoint's values into the optimizer's float32 parameters, too."""
    if not resuming.is_ours(self.task):
        return original(self, *arguments, **named)
    model, wrapper = self.get_model(), self.model
    values: dict[int, Tensor] = {}

    def load_state_dict(*state: Any, **options: Any) -> Any:
        halves = _half_tensors(model)
        values.update({id(half): half.detach().float() for half in halves})
        with _holding(model, values):
            loaded = type(wrapper).load_state_dict(wrapper, *state, **options)
        for half in halves:
            half.data.copy_(values[id(half)])
        return loaded

    wrapper.load_state_dict = load_state_dict
    try:
        extra = original(self, *arguments, **named)
    finally:
        del wrapper.load_state_dict
    if values:
        for half, float32 in optimized_parameters(self):
            float32.data.copy_(values[id(half)])
        frozen = [half for half in _half_tensors(model) if id(half) in values and not half.requires_grad]
        setattr(self, FROZEN, {id(half): values[id(half)].cpu() for half in frozen})
    return extra


@contextlib.contextmanager
def _holding(model: nn.Module, values: Mapping[int, Tensor]) -> Iterator[None]:
    """Within the block, a model holds other tensors: id of a parameter or buffer -> the tensor in its place."""
    # the attributes change, not the parameters' data: with another type these would lose the hooks of DDP
    held = [
        (module, name, tensor)
        for module in model.modules()
        for tensors in (module.named_parameters, module.named_buffers)
        for name, tensor in tensors(recurse=False, remove_duplicate=False)
        if id(tensor) in values
    ]
    for module, name, tensor in held:
        value = values[id(tensor)]
        setattr(module, name, nn.Parameter(value, False) if isinstance(tensor, nn.Parameter) else value)
    try:
        yield
    finally:
        for module, name, tensor in held:
            setattr(module, name, tensor)


def _half_tensors(model: nn.Module) -> list[Tensor]:
    tensors = (*model.parameters(), *model.buffers())
    return [tensor for tensor in tensors if tensor.dtype in (torch.float16, torch.bfloat16)]


def optimized_parameters(trainer: Any) -> list[tuple[Tensor, Tensor]]:
    """Pairs of a half-precision parameter and the float32 one that an optimizer updates for it."""
    from fairseq.optim import FP16Optimizer

    optimizer = trainer.optimizer
    if not isinstance(optimizer, FP16Optimizer):
        return []
    halves = [half for half in optimizer.fp16_params if half.requires_grad]
    return list(zip(halves, _unflattened(optimizer.fp32_params, halves), strict=True))


def _unflattened(parameters: Any, like: list[Tensor]) -> list[Tensor]:
    """The parameters one by one: of one device they may be a single row, in a dictionary."""
    if not isinstance(parameters, dict):
        return list(parameters)
    (row,) = parameters.values()
    parts = row.data.split([half.numel() for half in like])
    return [part.view_as(half) for part, half in zip(parts, like, strict=True)]
