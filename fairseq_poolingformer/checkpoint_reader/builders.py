"""The values that have names in a checkpoint, each made here from parts that are checked first.

A builder takes the arguments that a file gives, and the file's budget. Objects without a place among data become plain:
configurations of omegaconf and fairseq's meters are dictionaries and lists.
"""

import argparse
import collections
import math
import re
from collections.abc import Callable
from typing import Any

import numpy
import torch

from fairseq_poolingformer.checkpoint_reader import tensors
from fairseq_poolingformer.checkpoint_reader.bounds import Budget
from fairseq_poolingformer.checkpoint_reader.errors import Malformed, Refused

# booleans, integers, floats, complex numbers, bytes and text
PLAIN = re.compile(r"[<>=|]?(?:\?|[biufc]\d{1,2}|[bBhHiIlLqQefdgFDG]|[SU]\d{0,6})")
DEVICE = re.compile(r"(?:cpu|cuda|mps|xla|xpu|hpu)(?::\d{1,2})?")
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
METERS = ("AverageMeter", "SumMeter", "TimeMeter", "StopwatchMeter")
NODES = ("AnyNode", "StringNode", "IntegerNode", "FloatNode", "BooleanNode", "EnumNode", "BytesNode", "PathNode")
MOST_ELEMENTS = 2**40
_PENDING = object()

Builder = Callable[[tuple, Budget], Any]


class Foreign:
    """Takes the place of a value that stands for no data, so that all of a file's foreign names are found."""


class Unfinished:
    """A value that is known only when the file gives its state."""

    def __init__(self, complete: Callable[[Any, Budget], Any]) -> None:
        self.complete = complete
        self.value: Any = _PENDING


def settled(value: Any) -> Any:
    """The value itself, where it was unfinished before."""
    return value.value if type(value) is Unfinished and value.value is not _PENDING else value


def finished(target: Any, state: Any, budget: Budget) -> None:
    """Give a value its state."""
    kind = type(target)
    if kind is Unfinished and target.value is _PENDING:
        target.value = target.complete(state, budget)
    elif kind is argparse.Namespace:
        budget.spend(len(options := _dictionary(state)))
        if not all(type(name) is str and not name.startswith("__") for name in options):
            raise Malformed("an option in it has no name")
        vars(target).update(options)
    elif kind is collections.OrderedDict:
        versions = _dictionary(state).get("_metadata")  # of a model's modules
        if isinstance(versions, dict) and all(isinstance(version, dict) for version in versions.values()):
            target._metadata = versions
    else:
        raise Malformed(f"a {kind.__name__} in it has a state")


def _dictionary(state: Any) -> dict:
    if not isinstance(state, dict):
        raise Malformed("the state of an object in it is not a dictionary")
    return state


def _none(arguments: tuple) -> None:
    if arguments:
        raise Malformed("an object in it has arguments that its class does not take")


def _only(arguments: tuple, kind: type) -> Any:
    """The one argument, or an empty value where there is none."""
    if not arguments:
        return kind()
    if len(arguments) != 1 or not isinstance(arguments[0], kind):
        raise Malformed(f"an object in it is not made of one {kind.__name__}")
    return arguments[0]


def _namespace(arguments: tuple, budget: Budget) -> argparse.Namespace:
    _none(arguments)
    return argparse.Namespace()


def _ordered(arguments: tuple, budget: Budget) -> collections.OrderedDict:
    pairs = _only(arguments, list)
    budget.spend(len(pairs))
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise Malformed("a dictionary in it is not made of pairs")
    budget.check_keys(key for key, _ in pairs)
    return collections.OrderedDict(pairs)


def _counter(arguments: tuple, budget: Budget) -> collections.Counter:
    counts = _only(arguments, dict)
    budget.spend(len(counts))
    budget.check_keys(counts)
    return collections.Counter(counts)


def _default_dictionary(arguments: tuple, budget: Budget) -> dict:
    return {}  # what it would make of missing keys is not looked at


def _set(arguments: tuple, budget: Budget) -> set:
    elements = _only(arguments, list)
    budget.spend(len(elements))
    budget.check_keys(elements)
    return set(elements)


def _encoded(arguments: tuple, budget: Budget) -> bytes:
    """Bytes, as protocol 2 writes them: text in which each character stands for a byte."""
    if [type(part) for part in arguments] != [str, str] or arguments[1] not in ("latin1", "latin-1"):
        raise Malformed("bytes in it are not text in latin1")
    budget.spend_bytes(len(arguments[0]))
    try:
        return arguments[0].encode("latin1")
    except UnicodeEncodeError:
        raise Malformed("bytes in it are not text in latin1") from None


def _bytes(arguments: tuple, budget: Budget) -> bytes:
    _none(arguments)
    return b""


def _size(arguments: tuple, budget: Budget) -> torch.Size:
    sizes = _only(arguments, tuple)
    budget.spend(len(sizes))
    if not all(type(size) is int and 0 <= size < 2**63 for size in sizes):
        raise Malformed("a torch.Size in it is not made of numbers")
    return torch.Size(sizes)


def _device(arguments: tuple, budget: Budget) -> torch.device:
    name = ":".join(str(part) for part in arguments if type(part) in (str, int))
    if len(arguments) > 2 or not DEVICE.fullmatch(name):
        raise Malformed("a torch.device in it is unknown")
    return torch.device(name)


def _meter(arguments: tuple, budget: Budget) -> Unfinished:
    _none(arguments)
    return Unfinished(lambda state, budget: _dictionary(state))


def _configuration(arguments: tuple, budget: Budget) -> Unfinished:
    """A container of omegaconf: its content is a dictionary, a list, or text that refers to another value."""
    _none(arguments)
    return Unfinished(lambda state, budget: _entry(state, "_content", (dict, list, str, type(None))))


def _node(arguments: tuple, budget: Budget) -> Unfinished:
    """A value of a configuration of omegaconf."""
    _none(arguments)
    return Unfinished(lambda state, budget: _entry(state, "_val", (str, bytes, bool, int, float, type(None))))


def _description(arguments: tuple, budget: Budget) -> Unfinished:
    """What omegaconf knows of the type of a value."""
    _none(arguments)
    return Unfinished(lambda state, budget: None)


def _entry(state: Any, name: str, kinds: tuple[type, ...]) -> Any:
    if name not in _dictionary(state) or not isinstance(state[name], kinds):
        raise Malformed("an object of omegaconf in it lacks its content")
    return state[name]


def _dtype(arguments: tuple, budget: Budget) -> Unfinished:
    """A type of numpy: its name, and with its state its byte order. All else must be what the name says."""
    code = arguments[0] if arguments else None
    if type(code) is not str or not PLAIN.fullmatch(code):
        raise Refused("it has a numpy type that holds more than numbers or text")
    try:
        plain = numpy.dtype(code)
    except TypeError:
        raise Malformed("it has a numpy type that does not exist") from None

    def with_byte_order(state: Any, budget: Budget) -> numpy.dtype:
        if not (
            isinstance(state, tuple)
            and len(state) >= 6
            and type(state[1]) is str
            and state[1] in ("<", ">", "=", "|")
            and all(part is None for part in state[2:5])  # the parts of a compound type
            and type(state[5]) is int
            and state[5] in (-1, plain.itemsize)
        ):
            raise Malformed("it has a numpy type whose description contradicts its name")
        return plain.newbyteorder(state[1])

    return Unfinished(with_byte_order)


def _array(arguments: tuple, budget: Budget) -> Unfinished:
    def with_values(state: Any, budget: Budget) -> numpy.ndarray:
        if not (isinstance(state, tuple) and len(state) == 5 and isinstance(state[2], numpy.dtype)):
            raise Refused("it has a numpy array of something else than numbers or text")
        _, shape, dtype, in_columns, values = state
        if not (
            isinstance(shape, tuple)
            and len(shape) <= 32
            and all(type(size) is int and size >= 0 for size in shape)
            and math.prod(size for size in shape if size) <= MOST_ELEMENTS
            and type(values) is bytes
            and len(values) == math.prod(shape) * dtype.itemsize
            and (dtype.itemsize or not math.prod(shape))
        ):
            raise Malformed("it has a numpy array whose shape does not fit its values")
        order = "F" if in_columns is True else "C"
        if not values:
            return numpy.zeros(shape, dtype)
        here = dtype.newbyteorder("=")  # numpy's own pickles come back in the order of this machine, too
        return _elements(dtype, values, budget).reshape(shape, order=order).astype(here, order=order)

    return Unfinished(with_values)


def _scalar(arguments: tuple, budget: Budget) -> numpy.generic:
    if len(arguments) != 2 or not isinstance(arguments[0], numpy.dtype) or type(arguments[1]) is not bytes:
        raise Malformed("it has a numpy scalar without type or value")
    dtype, value = arguments
    if len(value) != dtype.itemsize:
        raise Malformed("it has a numpy scalar whose value does not fit its type")
    return _elements(dtype, value, budget)[0] if value else dtype.type()


def _elements(dtype: numpy.dtype, values: bytes, budget: Budget) -> numpy.ndarray:
    budget.spend_bytes(len(values))
    characters = numpy.frombuffer(values, numpy.dtype("u4").newbyteorder(dtype.byteorder)) if dtype.kind == "U" else ()
    if len(characters) and characters.max() >= 0x110000:
        raise Malformed("it has text of numpy with characters that do not exist")
    return numpy.frombuffer(values, dtype)


def _named(module: str, names: tuple[str, ...], builder: Builder) -> dict[str, Builder]:
    return {f"{module}.{name}": builder for name in names}


TYPES = {f"torch.{name}": getattr(torch, name) for name in DTYPES}
BUILDERS: dict[str, Builder] = {
    "argparse.Namespace": _namespace,
    "collections.OrderedDict": _ordered,
    "collections.Counter": _counter,
    "collections.defaultdict": _default_dictionary,
    "_codecs.encode": _encoded,
    "torch.Size": _size,
    "torch.device": _device,
    "torch._utils._rebuild_tensor": lambda arguments, budget: tensors.tensor(arguments),
    "torch._utils._rebuild_tensor_v2": lambda arguments, budget: tensors.tensor(arguments),
    "torch._utils._rebuild_parameter": lambda arguments, budget: tensors.parameter(arguments),
    "numpy.dtype": _dtype,
}
for _module in ("builtins", "__builtin__"):  # the names of Python 3 and of protocol 2
    BUILDERS |= {f"{_module}.set": _set, f"{_module}.bytes": _bytes}
for _module in ("numpy._core.multiarray", "numpy.core.multiarray"):  # of numpy 2 and of numpy 1
    BUILDERS |= {f"{_module}._reconstruct": _array, f"{_module}.scalar": _scalar}
for _module in ("fairseq.logging.meters", "fairseq.meters"):  # now, and before 2020
    BUILDERS |= {**_named(_module, METERS, _meter), f"{_module}.MetersDict": _ordered}
BUILDERS |= {"omegaconf.dictconfig.DictConfig": _configuration, "omegaconf.listconfig.ListConfig": _configuration}
BUILDERS |= _named("omegaconf.base", ("ContainerMetadata", "Metadata"), _description)
BUILDERS |= _named("omegaconf.nodes", NODES, _node)
