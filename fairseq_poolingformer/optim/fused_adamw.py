"""fairseq's ``--optimizer fused_adamw``: torch's fused AdamW."""

import ast
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam
from omegaconf import II
from torch import Tensor
from torch.optim.adamw import adamw


@dataclass
class FusedAdamWConfig(FairseqDataclass):
    adam_betas: Any = field(default=(0.9, 0.999), metadata={"help": "betas of Adam, e.g. '(0.9, 0.98)'"})
    adam_eps: float = field(default=1e-8, metadata={"help": "epsilon of Adam"})
    weight_decay: float = field(default=0.0, metadata={"help": "decoupled weight decay"})
    lr: list[float] = field(default=II("optimization.lr"))


class FusedAdamW(torch.optim.AdamW):
    """torch's fused AdamW, which also updates half-precision parameters from float32 moments.

    torch alone would keep the moments of float16 parameters in float16, where squared gradients vanish.
    """

    supports_memory_efficient_fp16 = True
    supports_flat_params = True

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient.

        Args:
            closure: computes the loss again, as torch's optimizers take it.
        """
        if all(p.dtype in (torch.float32, torch.float64) for group in self.param_groups for p in group["params"]):
            return super().step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step_in_float32(parameter, group)
        return loss

    def _step_in_float32(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Update one parameter through a float32 copy; only one copy exists at a time."""
        copy = parameter.float()
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=copy.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(copy), torch.zeros_like(copy)
        # fairseq does not move or convert the state that it loads from a checkpoint
        state |= {name: torch.as_tensor(value).to(copy) for name, value in state.items()}
        adamw(
            [copy],
            [parameter.grad.float()],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            fused=True,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )
        parameter.copy_(copy)


@register_optimizer("fused_adamw", dataclass=FusedAdamWConfig)
class FairseqFusedAdamW(FairseqOptimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019), one kernel for all parameters.

    fairseq's ``adam`` differs in ε only, which it adds before the bias correction of the second moment: there ε counts
    1/√(1 − β₂ᵗ) times as much, 32 times in the first update and about once after some thousands.
    """

    def __init__(self, cfg: FusedAdamWConfig, params):
        super().__init__(cfg)
        self._optimizer = FusedAdamW(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """The optimizer's arguments, which also override those of a checkpoint."""
        return {
            "lr": self.cfg.lr[0] if isinstance(self.cfg.lr, Collection) else self.cfg.lr,
            "betas": parse_betas(self.cfg.adam_betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
            "fused": True,
        }

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
        """Take the state of this optimizer or of fairseq's ``adam``."""
        groups = [{**group, "fused": True} for group in state_dict["param_groups"]]  # places the step count
        super().load_state_dict({**state_dict, "param_groups": groups}, optimizer_overrides)

    average_params = FairseqAdam.average_params


def parse_betas(betas: Any) -> tuple[float, float]:
    """The two decay rates from an option's text or from a sequence.

    Raises:
        ValueError: they are not two numbers in [0, 1).
    """
    try:
        first, second = ast.literal_eval(betas) if isinstance(betas, str) else betas
        if 0 <= first < 1 and 0 <= second < 1:
            return float(first), float(second)
    except (SyntaxError, TypeError, ValueError):
        pass
    raise ValueError(f"--adam-betas must be two numbers in [0, 1), such as '(0.9, 0.98)'; got {betas!r}")
