"""fairseq's ``--optimizer clipped_adagrad``: Adagrad as adaptive span and GAA are trained with it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II
from torch import Tensor

from fairseq_poolingformer.training.single_parameters import SingleParameters, first_lr

EPSILON = 1e-10  # in both denominators, as in the published code


@dataclass
class ClippedAdagradConfig(FairseqDataclass):
    parameter_clip_norm: float = field(
        default=0.03,
        metadata={
            "help": "scale the learning rate of each parameter down by min(1, X / norm of its gradient); 0: never. "
            "Leave --clip-norm, which scales all gradients together, at 0"
        },
    )
    weight_decay: float = field(default=0.0, metadata={"help": "times the parameter, added to its gradient"})
    lr: list[float] = field(default=II("optimization.lr"))


class ClippedAdagrad(SingleParameters):
    """Adagrad whose learning rate shrinks where a parameter's gradient is large (Sukhbaatar et al. 2019, their code).

    For each parameter p, a whole tensor, with gradient g:
    ``s ← s + g²;  p ← p − lr · min(1, c / ‖g‖) · g / √s``

    The sum s has the squares of the gradients as they are. Clipping the gradients first, as ``--clip-norm`` does, would
    shrink s as well, and Adagrad divides by its root: most of the clipping would be lost.

    Half-precision parameters are updated through float32, in which their s is kept.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        clip_norm: c; 0 for no clipping.
        weight_decay: times the parameter, added to its gradient.

    Raises:
        ValueError: ``clip_norm`` is less than 0.
    """

    supports_memory_efficient_fp16 = True
    supports_flat_params = False  # the norm is of one parameter

    def __init__(self, params: Iterable, *, lr: float, clip_norm: float, weight_decay: float = 0.0) -> None:
        if not clip_norm >= 0:
            raise ValueError(f"--parameter-clip-norm must be 0 or more, got {clip_norm}")
        super().__init__(params, {"lr": lr, "clip_norm": clip_norm, "weight_decay": weight_decay})

    def update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """See the class."""
        dtype = torch.promote_types(parameter.dtype, torch.float32)
        gradient = parameter.grad.to(dtype)
        if group["weight_decay"]:
            gradient = gradient + group["weight_decay"] * parameter
        state = self.state[parameter]
        # fairseq may restore the sum on another device or in half precision
        total = state["sum"].to(gradient) if state else torch.zeros_like(gradient)
        state["sum"] = total.addcmul_(gradient, gradient)
        step = group["lr"] * gradient / (total.sqrt() + EPSILON)
        if group["clip_norm"]:
            norm = gradient.norm()
            step *= torch.where(norm > group["clip_norm"], group["clip_norm"] / (norm + EPSILON), 1.0)
        parameter.copy_(parameter - step)


@register_optimizer("clipped_adagrad", dataclass=ClippedAdagradConfig)
class FairseqClippedAdagrad(FairseqOptimizer):
    """:class:`ClippedAdagrad` for fairseq.

    ``--fp16`` needs ``--fp16-no-flatten-grads``, and fairseq says so: otherwise all parameters are one.
    """

    def __init__(self, cfg: ClippedAdagradConfig, params):
        super().__init__(cfg)
        self._optimizer = ClippedAdagrad(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """The optimizer's arguments, which also override those of a checkpoint."""
        return {
            "lr": first_lr(self.cfg.lr),
            "clip_norm": self.cfg.parameter_clip_norm,
            "weight_decay": self.cfg.weight_decay,
        }
