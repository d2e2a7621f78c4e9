"""The part that the optimizers share which update one parameter after the other."""

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor


class SingleParameters(torch.optim.Optimizer):
    """Updates one parameter after the other."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient.

        Args:
            closure: computes the loss again, as torch's optimizers take it.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, group)
        return loss

    def update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Update one parameter, with its group's settings."""
        raise NotImplementedError


def first_lr(lr: float | Collection[float]) -> float:
    """The learning rate that ``--lr`` begins with; fairseq gives one a epoch, or a number."""
    return lr[0] if isinstance(lr, Collection) else lr
