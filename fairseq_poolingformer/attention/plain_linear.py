"""Which linear layers may be computed by their weights alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from torch import Tensor, nn
from torch.nn.modules import module as torch_module

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(f"_global{hooks}" for hooks in HOOKS)  # those of all modules


def is_plain_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether ``module`` is ``x @ weight.T + bias`` and nothing else, unlike adapters, quantized layers and hooks."""
    if type(module) is not nn.Linear:
        return False
    hooks = [getattr(module, name) for name in HOOKS] + [getattr(torch_module, name) for name in GLOBAL_HOOKS]
    return (
        not any(hooks)
        and "forward" not in vars(module)  # replaced on the instance, as accelerate does
        and type(module.weight) in (nn.Parameter, Tensor)  # subclasses of Tensor may be quantized or sharded
    )


def are_alike(modules: Sequence[nn.Module]) -> bool:
    """Whether all are plain and all or none have a bias, so that one product of their weights computes them."""
    return all(map(is_plain_linear, modules)) and len({module.bias is None for module in modules}) == 1
