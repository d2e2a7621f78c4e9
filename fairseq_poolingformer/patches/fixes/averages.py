"""Averages of parameters: ``--store-ema``."""

from collections.abc import Callable
from typing import Any

import torch

from fairseq_poolingformer.patches.patching import replace


def apply() -> None:
    """Patch the moving average of a model; see :func:`integers_as_they_are`."""
    from fairseq.models.ema import EMA

    replace(EMA, "__init__", integers_as_they_are)


def integers_as_they_are(original: Callable) -> Callable:
    """Let ``--store-ema`` train a model with integer buffers, which the average takes over from the model.

    fairseq multiplies every entry of the state dict by the decay in place, and torch refuses that for integers: the
    first update of a model with a count among its buffers ended in a RuntimeError.
    """

    def __init__(self: Any, model: Any, config: Any, device: Any = None, skip_keys: Any = None) -> None:
        tensors = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
        integers = {name for name, value in tensors.items() if not value.is_floating_point()}
        original(self, model, config, device, integers | set(skip_keys or ()))

    return __init__
