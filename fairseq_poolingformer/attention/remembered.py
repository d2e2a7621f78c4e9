"""What follows from the masks of a batch is computed once, and not in each layer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from fairseq_poolingformer.attention.compiler import exporting

P = ParamSpec("P")
R = TypeVar("R")
WRITTEN_BY_OTHERS = ("cpu",)  # numpy and other processes may write the memory of a tensor, which counts no such change
RESULTS = 8  # that a function keeps, of its last calls: layers may have several geometries


def remembered(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose last results are kept for calls with the very same tensors, unchanged since, on one stream.

    Other arguments are compared by value. Nothing is kept in inference mode, traced models and captured graphs, which
    cannot use it again, nor of tensors whose memory others write. Callers must not change a result in place.
    """
    results: dict[tuple[Any, ...], tuple[Any, R]] = {}

    @functools.wraps(function)
    def remembering(*args: P.args, **kwargs: P.kwargs) -> R:
        key = _key(args)
        if key is None:
            return function(*args, **kwargs)
        entry = results.get(key)
        if entry is None:
            for oldest in list(results)[: max(0, len(results) + 1 - RESULTS)]:
                results.pop(oldest, None)  # another thread may have done so
            entry = results[key] = args, function(*args, **kwargs)  # as long as a tensor is kept, no other has its id
        return entry[1]

    return remembering


def _key(arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    if exporting() or torch.compiler.is_compiling() or torch.is_inference_mode_enabled() or is_in_torch_dispatch_mode():
        return None
    key: list[Any] = []
    for x in arguments:
        if isinstance(x, Tensor):
            if type(x) is not Tensor or x.is_inference() or x.device.type in WRITTEN_BY_OTHERS:
                return None
            key += [id(x), x._version]
        else:
            key.append(x)
    if torch.cuda.is_initialized():
        if torch.cuda.is_current_stream_capturing():
            return None
        key.append(torch.cuda.current_stream().cuda_stream)
    return tuple(key)
