"""A pretended accelerator: its tensors say that they are on another device, and the CPU computes them.

As on a GPU, an operation fails that joins one of them with a tensor of the CPU, so a tensor that was made on the wrong
device is found without a GPU. The device is "meta", the only one whose backward pass runs wherever the CPU's does.
"""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = torch.device("meta")
CPU = torch.device("cpu")
aten = torch.ops.aten
TRANSFERS = {aten._to_copy.default, aten.copy_.default}
TAKES_INDICES = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}


class OtherTensor(Tensor):
    """A tensor of the other device; ``inner`` has its numbers."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> OtherTensor:
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        tensor = Tensor._make_wrapper_subclass(cls, inner.size(), device=DEVICE, **layout)
        tensor.inner = inner.detach()
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _run(func, args, kwargs or {})

    def tolist(self) -> Any:
        """The numbers, as from a GPU."""
        return self.inner.tolist()


class _OtherDevice(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _run(func, args, kwargs or {})


@contextlib.contextmanager
def other_device():
    """Within it, ``device="meta"`` makes tensors of the other device, which has no autocast."""
    tensor = torch.tensor

    def tensor_there(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:
        made = tensor(*args, **kwargs)
        return made if device is None else made.to(device)

    no_autocast = {"is_autocast_enabled": lambda *_: False, "autocast": lambda *_, **__: contextlib.nullcontext()}
    with mock.patch.multiple(torch, tensor=tensor_there, **no_autocast), _OtherDevice():
        yield


def to_other_device(module: nn.Module) -> None:
    """Move the parameters and buffers of a module, as ``module.cuda()`` does."""
    moved: dict[Tensor, nn.Parameter] = {}  # shared parameters stay shared
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                new = moved.setdefault(parameter, nn.Parameter(OtherTensor(parameter), parameter.requires_grad))
                part._parameters[name] = new
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = OtherTensor(buffer)


def _run(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Compute an operation on the CPU; its results are where a GPU's would be."""
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    here = not any(isinstance(x, OtherTensor) for x in tensors)
    if not here and func not in TRANSFERS:
        _must_be_there(func, args, tensors)
    stays = here if kwargs.get("device") is None else torch.device(kwargs["device"]) == CPU
    numbers = {name: CPU if name == "device" and value is not None else value for name, value in kwargs.items()}
    inner_args, inner_kwargs = tree_map_only(OtherTensor, lambda x: x.inner, (args, numbers))
    result = func(*inner_args, **inner_kwargs)
    if func is aten.copy_.default:
        return args[0]
    if stays:
        return result
    result = tree_map_only(Tensor, OtherTensor, result)
    return result if here else return_and_correct_aliasing(func, args, kwargs, result)


def _must_be_there(func: Any, args: tuple, tensors: list[Tensor]) -> None:
    if func in TAKES_INDICES:  # a GPU takes indices from the CPU
        indices = args[1]
        tensors = [x for x in tensors if not any(x is index for index in indices)]
    for x in tensors:
        if not isinstance(x, OtherTensor) and (x.dim() > 0 or (func._schema.is_mutable and x is args[0])):
            raise RuntimeError(f"{func}: a tensor {tuple(x.shape)} of {x.dtype} is on the CPU, others are not")
