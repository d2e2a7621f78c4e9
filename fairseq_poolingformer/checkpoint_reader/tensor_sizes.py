"""The sizes in a checkpoint's configuration against its own tensors, before a model is built from either.

:func:`check_sizes` compares layers, widths and positions one by one, so that a message can name the option.
:class:`Building` bounds what all of them together make.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fairseq_poolingformer.checkpoint_reader.errors import ConfigurationError
from fairseq_poolingformer.checkpoint_reader.option_schema import COUNTS

# option -> names of the tensors that have a row or column for each unit of it, and that dimension
_UNITS = {
    **{f"{side}_embed_dim": (rf"(.*\.)?{side}\.(.*\.)?embed_tokens\.weight", 1) for side in ("encoder", "decoder")},
    **{f"{side}_ffn_embed_dim": (rf"(.*\.)?{side}\..*\.fc1\.weight", 0) for side in ("encoder", "decoder")},
    "max_source_positions": (r"encoder\.embed_positions\.weight", 0),
    "max_target_positions": (r"decoder\.embed_positions\.weight", 0),
    "max_positions": (r"encoder\.sentence_encoder\.embed_positions\.weight", 0),
}
_LAYER = re.compile(r"(?:.*\.)?(?:layers?\.|\w+_l)(\d{1,9})(?:[._].*)?")
_WIDTH = re.compile(r".*_(dim|hidden_size)")


def check_sizes(options: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Compare a model's options with the tensors of the same file."""
    found = 1 + max((int(match[1]) for name in state if (match := _LAYER.fullmatch(name))), default=-1)
    for option in COUNTS:
        count = options.get(option)
        if isinstance(count, int) and count > max(found, 1):
            raise ConfigurationError(
                f"its option {option} is {count:,}, and its parameters are those of {found} layers"
            )
    widest = max(((max(value.shape, default=0), name) for name, value in state.items()), default=(0, "none"))
    for option, value in options.items():
        if not isinstance(value, int):
            continue
        pattern, dimension = _UNITS.get(option, (None, 0))
        tensors = {n: t for n, t in state.items() if pattern and t.dim() > dimension and re.fullmatch(pattern, n)}
        name, tensor = next(iter(tensors.items()), (None, None))
        if tensor is not None and value > max(each.size(dimension) for each in tensors.values()):
            raise ConfigurationError(f"its option {option} is {value:,}, and its {name} is {tuple(tensor.shape)}")
        if tensor is None and _WIDTH.fullmatch(option) and value > max(widest[0], 4096):
            raise ConfigurationError(
                f"its option {option} is {value:,}, and none of its tensors is so wide; the widest, {widest[1]}, is "
                f"{tuple(state[widest[1]].shape) if state else ()}"
            )


class Building(TorchDispatchMode):
    """Within the block, tensors are made only up to a multiple of what a checkpoint holds."""

    TIMES = 4  # parameters, their first random values, and copies while they are made
    MORE_ELEMENTS = 2**26  # masks, sinusoids, positions that the user asks for: 256 MiB in float32
    MORE_CALLS = 20_000

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.held = sum(value.numel() for value in state.values())
        self.elements = self.TIMES * self.held + self.MORE_ELEMENTS
        self.calls = 100 * len(state) + self.MORE_CALLS

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler, which takes two seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if not any(result.alias_info for result in func._schema.returns):  # neither a view nor in place
            self.calls -= 1
            self.elements -= _elements_made(func, args, kwargs)
            if self.elements < 0 or self.calls < 0:
                raise ConfigurationError(
                    f"its configuration describes a model of more parameters than the {self.held:,} that it holds"
                )
        return func(*args, **kwargs)


def _elements_made(func: Any, args: tuple, kwargs: dict[str, Any]) -> int:
    """About how many elements an operation will make, found without doing it: never much less."""
    leaves = tree_leaves((args, kwargs))
    shapes = [leaf.shape for leaf in leaves if isinstance(leaf, Tensor)]
    lists = [each for each in (*args, *kwargs.values()) if isinstance(each, list | tuple)]
    sizes = [math.prod(each) for each in lists if all(type(value) is int for value in each)]
    if not shapes:
        numbers = [leaf for leaf in leaves if isinstance(leaf, int | float) and not isinstance(leaf, bool)]
        count = math.prod(max(1, abs(int(number))) for number in numbers)  # of a range, or one side of a square
        return max(sizes) if sizes else count * count if "eye" in func.__name__ else count
    try:
        elements = math.prod(torch.broadcast_shapes(*shapes))
    except RuntimeError:  # products of matrices, and tensors that are put one after the other
        elements = sum(map(math.prod, shapes)) + math.prod(shape[0] if shape else 1 for shape in shapes[:2])
    times = "repeat" in func.__name__
    return elements * max(sizes, default=1) if times else max(elements, *sizes, 0)
