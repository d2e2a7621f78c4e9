"""Half precision on a CPU."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from fairseq_poolingformer.compat.patching import replace

logger = logging.getLogger(__name__)


def apply() -> None:
    """Patch the building of half-precision optimizers; see :func:`unflattened_on_cpu`."""
    from fairseq.optim import FP16Optimizer

    replace(FP16Optimizer, "build_optimizer", unflattened_on_cpu)


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
