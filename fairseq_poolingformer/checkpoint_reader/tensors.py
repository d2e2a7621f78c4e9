"""Storages, and tensors that lie within them. Storages are filled when the whole pickle has been read."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from fairseq_poolingformer.checkpoint_reader.bounds import shown
from fairseq_poolingformer.checkpoint_reader.errors import Malformed, Refused
from fairseq_poolingformer.checkpoint_reader.whole import DICTIONARIES, Name

STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
MOST_DIMENSIONS = 64
MOST_ELEMENTS = 2**62


class Storage:
    """The memory of tensors."""

    __slots__ = ("count", "dtype", "first", "memory")

    def __init__(self, dtype: torch.dtype, memory: torch.UntypedStorage, first: int, count: int) -> None:
        self.dtype, self.memory, self.first, self.count = dtype, memory, first, count

    def bytes(self) -> memoryview:
        """The whole memory, to be written to."""
        return memoryview(torch.empty(0, dtype=torch.uint8).set_(self.memory).numpy())


def storage_dtype(kind: Any) -> torch.dtype:
    """The type of the elements of a kind of storage, such as the name ``torch.HalfStorage``."""
    module, _, name = kind.name.rpartition(".") if isinstance(kind, Name) else ("", "", "")
    if module not in ("torch", "torch.cuda") or name not in STORAGES:
        raise Refused(f"it has tensors of another kind ({shown(kind.name) if isinstance(kind, Name) else 'unnamed'})")
    return STORAGES[name]


def tensor(arguments: tuple) -> torch.Tensor:
    """Make the tensor that ``torch._utils._rebuild_tensor_v2`` would make."""
    if not 4 <= len(arguments) <= 7 or not isinstance(arguments[0], Storage):
        raise Malformed("a tensor in it lacks its storage")
    storage, offset, size, strides, *others = arguments
    requires_grad = others.pop(0) if others else False
    _refuse_properties(others)
    if not (_is_shape(size) and _is_shape(strides) and len(size) == len(strides) and type(offset) is int):
        raise Malformed("a tensor in it has a malformed shape")
    made = torch.empty(0, dtype=storage.dtype)
    if 0 in size:
        made = made.new_empty(tuple(size))
    else:
        if offset < 0 or offset + _reach(size, strides) >= storage.count:
            raise Malformed("a tensor in it lies outside of its storage")
        made.set_(storage.memory, storage.first + offset, tuple(size), tuple(strides))
    return _with_gradient(made, requires_grad)


def parameter(arguments: tuple) -> torch.nn.Parameter:
    """Make the parameter that ``torch._utils._rebuild_parameter`` would make: of a tensor."""
    if len(arguments) != 3 or type(arguments[0]) is not torch.Tensor:
        raise Malformed("a parameter in it is not a tensor")
    _refuse_properties(arguments[2:])
    return torch.nn.Parameter(_with_gradient(arguments[0].detach(), arguments[1]), arguments[1])


def _refuse_properties(others: Sequence) -> None:
    if any(other is not None and (type(other) not in DICTIONARIES or other) for other in others):
        raise Refused("a tensor in it has hooks or properties")


def _with_gradient(made: torch.Tensor, requires_grad: Any) -> torch.Tensor:
    if type(requires_grad) is not bool or (requires_grad and not made.is_floating_point()):
        raise Malformed("a tensor in it requires a gradient that it cannot have")
    return made.requires_grad_(requires_grad)


def _is_shape(sizes: Any) -> bool:
    return (
        isinstance(sizes, tuple)
        and len(sizes) <= MOST_DIMENSIONS
        and all(type(size) is int and size >= 0 for size in sizes)
        and math.prod(size for size in sizes if size) <= MOST_ELEMENTS
    )


def _reach(size: tuple, strides: tuple) -> int:
    """The distance from the first element to the last; elements must not share memory."""
    reach = 0
    for stride, count in sorted((stride, count) for stride, count in zip(strides, size, strict=True) if count > 1):
        if stride <= reach:
            raise Refused("a tensor in it has elements that share memory")
        reach += stride * (count - 1)
    return reach
