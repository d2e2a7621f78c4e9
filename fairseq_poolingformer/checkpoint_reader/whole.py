"""The whole of what a file holds: data only, without cycles, and bounded when shared parts are counted each time."""

import argparse
import collections
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy
import torch

from fairseq_poolingformer.checkpoint_reader.bounds import MOST_VALUES, NUMBERS, shown
from fairseq_poolingformer.checkpoint_reader.errors import Refused

DEEPEST = 100  # containers within containers
MOST_NAMES = 10  # in a message
MOST_CHARACTERS = 2**28  # of all text
MOST_SHARING = 64  # tensors may have so many times the bytes of their file

DICTIONARIES = (dict, collections.OrderedDict, collections.Counter)
SEQUENCES = (list, tuple, set)
LEAVES = (str, bytes, torch.Tensor, torch.nn.Parameter, numpy.ndarray, torch.Size, torch.device, torch.dtype, *NUMBERS)


class Extent(NamedTuple):
    """How large a value is."""

    values: int = 1
    characters: int = 0
    tensor_bytes: int = 0
    depth: int = 0


class Name:
    """A name in a file. It stands for nothing, and nothing is looked up by it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def refusal(names: set[str]) -> str:
    """Say that a file refers to something beyond data."""
    first = sorted(names)[:MOST_NAMES]
    others = f" and {len(names) - len(first)} others" if len(names) > len(first) else ""
    return f"it refers to {', '.join(map(shown, first))}{others}, and a checkpoint may hold nothing but data"


def check_whole(root: Any, file_size: int) -> None:
    """Check what a file holds."""
    extents: dict[int, Extent] = {}  # by id
    names: set[str] = set()
    path = [(root, _parts(root, names))]
    on_path = {id(root)}
    while path:
        value, rest = path[-1]
        if not rest:
            path.pop()
            on_path.remove(id(value))
            extents[id(value)] = _checked(_extent(value, extents), file_size)
            continue
        part = rest.pop()
        if id(part) in extents:
            continue
        if id(part) in on_path:
            raise Refused("a value in it holds itself")
        if len(path) > DEEPEST:
            raise Refused(f"its values are nested more than {DEEPEST} deep")
        path.append((part, _parts(part, names)))
        on_path.add(id(part))
    if names:
        raise Refused(refusal(names))


def _parts(value: Any, names: set[str]) -> list[Any]:
    """The parts of a value that are not numbers."""
    kind = type(value)
    if kind not in LEAVES and kind not in DICTIONARIES and kind not in SEQUENCES and kind is not argparse.Namespace:
        if not isinstance(value, numpy.generic):
            names.add(value.name if isinstance(value, Name) else "a value that it does not finish")
        return []
    return [part for part in _inside(value) if type(part) not in NUMBERS]


def tensors(root: Any) -> Iterator[torch.Tensor]:
    """The tensors in a value that :func:`check_whole` has checked."""
    left = [root]
    while left:
        part = left.pop()
        if isinstance(part, torch.Tensor):
            yield part
        left.extend(_inside(part))


def _inside(value: Any) -> list[Any]:
    kind = type(value)
    if kind is argparse.Namespace:
        return list(vars(value).values())
    if kind is collections.OrderedDict:
        return [*value.values(), *vars(value).values()]
    if kind in DICTIONARIES:
        return list(value.values())
    return list(value) if kind in SEQUENCES else []


def _extent(value: Any, extents: dict[int, Extent]) -> Extent:
    if isinstance(value, str | bytes):
        return Extent(characters=len(value))
    if isinstance(value, torch.Tensor):
        return Extent(tensor_bytes=value.numel() * value.element_size())
    if isinstance(value, numpy.ndarray | numpy.generic):
        return Extent(characters=value.nbytes)
    inside = _inside(value)
    parts = [extents[id(part)] for part in inside if type(part) not in NUMBERS]
    names = vars(value) if isinstance(value, argparse.Namespace) else value if isinstance(value, dict) else ()
    return Extent(
        values=1 + len(inside) - len(parts) + sum(part.values for part in parts),
        characters=sum(part.characters for part in parts) + sum(len(name) for name in names if type(name) is str),
        tensor_bytes=sum(part.tensor_bytes for part in parts),
        depth=1 + max((part.depth for part in parts), default=0),
    )


def _checked(extent: Extent, file_size: int) -> Extent:
    """Refuse an extent at once, so that sums of shared parts do not grow to numbers of millions of digits."""
    if extent.depth > DEEPEST:
        raise Refused(f"its values are nested more than {DEEPEST} deep")
    if extent.values > MOST_VALUES or extent.characters > MOST_CHARACTERS:
        raise Refused("its values share so many parts that they are endless in effect")
    if extent.tensor_bytes > MOST_SHARING * max(file_size, 2**20):
        raise Refused("its tensors share their storages so often that they are endless in effect")
    return extent
