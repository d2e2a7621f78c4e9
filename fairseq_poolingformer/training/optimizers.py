"""Optimizers for fairseq, ``fused_adamw`` and ``clipped_adagrad``, and the schedule ``staged``."""

import ast
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II
from torch import Tensor
from torch.optim.adamw import adamw

from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.options import option

# values of ``param_group`` (fairseq's attribute) for parameters with their own learning rate
HEAD, POOLED = "head", "pooled"
OWN_RATES = {  # mark -> the flag, whose parameters they are, and where there are some
    HEAD: ("--head-lr", "a task's head", "The task must be one of docs/tasks.md"),
    POOLED: ("--pooled-lr", "a second level", "--pooled-layers must name a layer"),
}
UNFLATTENED = "--fp16 needs --fp16-no-flatten-grads, and so does --bf16"
EPSILON = 1e-10  # in both denominators of Adagrad, as in the published code


class SingleParameters(torch.optim.Optimizer):
    """Updates one parameter after the other."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient."""
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

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take a state whose tensors have the parameters' shapes; a fused kernel would write beyond smaller ones."""
        super().load_state_dict(state_dict)
        for parameter, state in self.state.items():
            for value in state.values():
                if isinstance(value, Tensor) and value.dim() and value.shape != parameter.shape:
                    raise UsageError(
                        f"the checkpoint's optimizer has a state of {tuple(value.shape)} for a parameter of "
                        f"{tuple(parameter.shape)}: the model was trained in another size, such as another "
                        "--max-source-positions; give that, or begin a training with --finetune-from-model"
                    )


def first_lr(lr: float | Collection[float]) -> float:
    """The learning rate that ``--lr`` begins with; fairseq gives one a epoch, or a number."""
    return lr[0] if isinstance(lr, Collection) else lr


@dataclass
class FusedAdamWConfig(FairseqDataclass):
    adam_betas: Any = option((0.9, 0.999), "betas of Adam, e.g. '(0.9, 0.98)'")
    adam_eps: float = option(1e-8, "epsilon of Adam")
    weight_decay: float = option(0.0, "decoupled weight decay")
    head_lr: float = option(
        0.0,
        "learning rate of a task's head where the scheduler sets the others to --lr; it rises and decays "
        f"with them. 0: --lr. {UNFLATTENED}",
    )
    pooled_lr: float = option(0.0, "the same of level two's projections and pooling, which a short checkpoint lacks")
    lr: list[float] = field(default=II("optimization.lr"))


class FusedAdamW(SingleParameters, torch.optim.AdamW):
    """torch's fused AdamW, with float32 moments for half-precision parameters, whose squared gradients would vanish."""

    supports_memory_efficient_fp16 = True
    supports_flat_params = True

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient."""
        if all(p.dtype in (torch.float32, torch.float64) for group in self.param_groups for p in group["params"]):
            return torch.optim.AdamW.step(self, closure)
        return super().step(closure)

    def update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Update one parameter through a float32 copy; only one copy exists at a time."""
        copy = parameter.float()
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=copy.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(copy), torch.zeros_like(copy)
        # fairseq does not move or convert the state that it loads from a checkpoint
        state |= {name: torch.as_tensor(value).to(copy) for name, value in state.items()}
        tensors = (copy, parameter.grad.float(), state["exp_avg"], state["exp_avg_sq"])
        adamw(
            *([tensor] for tensor in tensors),
            *([], [state["step"]]),
            **{name: group[name] for name in ("lr", "weight_decay", "eps")},
            **dict(zip(("beta1", "beta2"), group["betas"], strict=True)),
            **{"fused": True, "amsgrad": False, "maximize": False},
        )
        parameter.copy_(copy)


@register_optimizer("fused_adamw", dataclass=FusedAdamWConfig)
class FairseqFusedAdamW(FairseqOptimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019), one kernel for all parameters."""

    # fairseq's adam adds ε before the bias correction: there it counts 1/√(1 − β₂ᵗ) times as much

    def __init__(self, cfg: FusedAdamWConfig, params):
        super().__init__(cfg)
        self._optimizer = FusedAdamW(self._groups(list(params)), **self.optimizer_config)
        self.set_lr(self.optimizer_config["lr"])

    def _groups(self, params: list[Tensor]) -> list[Any]:
        """The parameters in one group, or those with a learning rate of their own in more groups after it."""
        lr = self.optimizer_config["lr"]
        marks, groups = set(), []
        for mark, (flag, whose, where) in OWN_RATES.items():
            rate = getattr(self.cfg, flag[2:].replace("-", "_"))
            if rate < 0 or (rate and not lr):
                raise ValueError(f"{flag} must be 0 or more, and --lr more than 0 with it; got {rate} and {lr}")
            if not rate:
                continue
            marked = [parameter for parameter in params if getattr(parameter, "param_group", None) == mark]
            if not marked:
                raise ValueError(
                    f"{flag} {rate:g}: no parameter of {whose}. {where}, and {UNFLATTENED}, since all parameters are "
                    "one otherwise"
                )
            marks.add(mark)
            groups.append({"params": marked, "lr_scale": rate / lr})
        others = [parameter for parameter in params if getattr(parameter, "param_group", None) not in marks]
        return [{"params": others}, *groups] if groups else params

    def set_lr(self, lr: float) -> None:
        """Set the learning rate; those of a head and of level two keep their ratio to it."""
        for group in self.param_groups:
            group["lr"] = lr * group.get("lr_scale", 1.0)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """The optimizer's arguments, which also override those of a checkpoint."""
        return {
            "lr": first_lr(self.cfg.lr),
            "betas": parse_betas(self.cfg.adam_betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
            "fused": True,
        }

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
        """Take the state of this optimizer or of fairseq's ``adam``."""
        scales = [group.get("lr_scale") for group in self.param_groups]  # of these options, not the checkpoint's
        groups = [{**group, "fused": True} for group in state_dict["param_groups"]]  # places the step count
        super().load_state_dict({**state_dict, "param_groups": groups}, optimizer_overrides)
        lr = self.get_lr()
        for group, scale in zip(self.param_groups, scales, strict=True):
            group.pop("lr_scale", None)
            if scale is not None:
                group["lr_scale"] = scale
        self.set_lr(lr)

    average_params = FairseqAdam.average_params


@dataclass
class ClippedAdagradConfig(FairseqDataclass):
    parameter_clip_norm: float = option(
        0.03,
        "scale the learning rate of each parameter down by min(1, X / norm of its gradient); 0: never. "
        "Leave --clip-norm, which scales all gradients together, at 0",
    )
    weight_decay: float = option(0.0, "times the parameter, added to its gradient")
    lr: list[float] = field(default=II("optimization.lr"))


class ClippedAdagrad(SingleParameters):
    """Adagrad whose learning rate shrinks where a parameter's gradient is large (Sukhbaatar et al. 2019, their code).

    For each parameter p, a whole tensor, with gradient g:
    ``s ← s + g²;  p ← p − lr · min(1, c / ‖g‖) · g / √s``

    The sum s has the squares of the gradients as they are. Clipping the gradients first, as ``--clip-norm`` does, would
    shrink s as well, and Adagrad divides by its root: most of the clipping would be lost.

    Half-precision parameters are updated through float32, in which their s is kept.
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
    """:class:`ClippedAdagrad` for fairseq; ``--fp16`` needs ``--fp16-no-flatten-grads``, or all parameters are one."""

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


def parse_betas(betas: Any) -> tuple[float, float]:
    """The two decay rates from an option's text or from a sequence."""
    try:
        first, second = ast.literal_eval(betas) if isinstance(betas, str) else betas
        if 0 <= first < 1 and 0 <= second < 1:
            return float(first), float(second)
    except (SyntaxError, TypeError, ValueError):
        pass
    raise UsageError(f"--adam-betas must be two numbers in [0, 1), such as '(0.9, 0.98)'; got {betas!r}")


@dataclass
class StagedLRConfig(FairseqDataclass):
    stage_first_update: int = option(0, "number of updates before this stage of the training")
    warmup_updates: int = option(0, "updates of the stage in which the learning rate rises to --lr, linearly")
    lr: list[float] = field(default=II("optimization.lr"))


@register_lr_scheduler("staged", dataclass=StagedLRConfig)
class StagedLR(FairseqLRScheduler):
    """A constant learning rate with a warm-up in each stage (Longformer, table 12); updates go on counting."""

    def __init__(self, cfg: StagedLRConfig, optimizer: FairseqOptimizer) -> None:
        super().__init__(cfg, optimizer)
        if len(cfg.lr) != 1:
            rates = ",".join(map(str, cfg.lr))
            raise ValueError(f"--lr-scheduler staged has one learning rate a stage, got --lr {rates}; train each stage")

    def step_update(self, num_updates: int) -> float:
        """Set the learning rate for the next update."""
        done = max(num_updates - self.cfg.stage_first_update, 0)
        rise = min(1.0, (done + 1) / max(self.cfg.warmup_updates, 1))
        self.optimizer.set_lr(self.cfg.lr[0] * rise)
        return self.optimizer.get_lr()
