"""Record the attention weights of a model while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fairseq_poolingformer.attention.modules import TwoLevelAttention
from fairseq_poolingformer.attention.probabilities import LevelWeights


@contextmanager
def recorded_weights(
    model: nn.Module, keep: Callable[[LevelWeights], Any] = lambda weights: weights
) -> Iterator[dict[str, Any]]:
    """Record the weights of a model's encoder layers, fairseq's or transformers', while the block runs.

    Args:
        model: a model with :class:`TwoLevelAttention` inside.
        keep: what to keep of a layer's weights, such as a few queries of a long document; by default all.

    Yields:
        A dict, filled whenever the model runs: the name of each attention module -> the result of ``keep`` for its last
        call.
    """

    def record(module: TwoLevelAttention, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return keep(module.weights(*args, **kwargs))

    with recorded_calls(model, TwoLevelAttention, record) as found:
        yield found


@contextmanager
def recorded_calls(model: nn.Module, kind: type[nn.Module], record: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """Record the calls of a model's modules of one kind while the block runs.

    Args:
        model: has such modules inside.
        kind: their class.
        record: gets a module and the arguments of its call, before it runs; returns what to keep.

    Yields:
        A dict, filled whenever the model runs: the name of each module -> what ``record`` returned for its last call.
    """
    found: dict[str, Any] = {}

    def recorder(name: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            found[name] = record(module, *args, **kwargs)

        return hook

    modules = [(name, module) for name, module in model.named_modules() if isinstance(module, kind)]
    hooks = [module.register_forward_pre_hook(recorder(name), with_kwargs=True) for name, module in modules]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
