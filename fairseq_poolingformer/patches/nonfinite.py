"""Numbers that are not finite: gradients, which ``--skip-nonfinite`` may leave out, and parameters."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.checkpoints import CheckpointError
from fairseq_poolingformer.patches.resuming import SKIPPED
from fairseq_poolingformer.training.nonfinite import NonfiniteError

logger = logging.getLogger(__name__)


def require_finite(path: Any, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that are NaN or infinite."""
    for name, value in parameters.items():
        if name.endswith("_float_tensor"):
            continue  # a buffer that fairseq leaves uninitialised
        if isinstance(value, Tensor) and value.is_floating_point() and not value.sum().isfinite():
            wrong = int((~value.isfinite()).sum())  # a sum of finite numbers may overflow
            if wrong:
                raise CheckpointError(
                    f"{path}: {wrong:,} of {value.numel():,} numbers of {name} are NaN or infinite: the training had "
                    "failed when it was saved. Take an earlier checkpoint"
                )


def refuse_nonfinite_models(original: Callable, filenames: list[str], *args: Any, **kwargs: Any) -> Any:
    """Refuse to use a checkpoint whose parameters are not finite."""
    models, cfg, task = original(filenames, *args, **kwargs)
    for path, model in zip(filenames, models, strict=True):
        require_finite(path, dict(model.named_parameters()))
    return models, cfg, task


def skip_nonfinite_update(original: Callable, self: Any, grad_norm: Tensor) -> None:
    """Skip an update whose gradient is not finite, as often as ``--skip-nonfinite`` allows, or name it and end."""
    # All workers have the same sum of gradients, so all skip the same updates. The OverflowError makes fairseq drop
    # them, as in float16, and the update does not count
    if self.cfg.common.amp or torch.isfinite(grad_norm).all():  # --amp has its own way with them
        return original(self, grad_norm)
    from fairseq.logging import metrics

    update, most, skipped = self.get_num_updates() + 1, _most_skipped(self), getattr(self, SKIPPED, 0)
    if skipped >= most:
        spent = f", and --skip-nonfinite {most} is used up" if most else ""
        raise NonfiniteError(
            f"update {update}: the norm of the gradient is {float(grad_norm)}{spent}. Lower --lr, set --clip-norm, or "
            "train in bfloat16 or float32 where this is float16; --skip-nonfinite N leaves out up to N such updates"
        )
    setattr(self, SKIPPED, skipped + 1)
    metrics.log_scalar(SKIPPED, skipped + 1, weight=0, priority=600, round=0)
    logger.warning(
        f"update {update}: skipped, because its gradient is not finite; {skipped + 1} of --skip-nonfinite {most} in "
        "this training"
    )
    raise OverflowError(f"its norm is {float(grad_norm)}")


def _most_skipped(trainer: Any) -> int:
    return getattr(getattr(trainer.task, "cfg", None), "skip_nonfinite", 0)


def keep_zero_where_there_is_no_gpu(original: Callable, *arguments: Any, **named: Any) -> Tensor:
    """Make a tensor that ``cuda()`` leaves on the CPU where there is no GPU: fairseq moves a zero after an overflow."""
    made = original(*arguments, **named)
    return made if torch.cuda.is_available() else made.as_subclass(_OnCPU)


class _OnCPU(Tensor):
    def cuda(self, *unused: Any, **also_unused: Any) -> Tensor:
        """Return the values as an ordinary tensor."""
        return self.as_subclass(Tensor)
