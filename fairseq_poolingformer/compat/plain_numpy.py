"""numpy's arrays and scalars in checkpoints, of plain types only.

A pickle builds a numpy array in two steps: it makes an empty one, and then sets its state, in which shape, type and
memory need not fit together. numpy does not check them, and a crafted file crashes the process. The classes here have
numpy's names in a checkpoint, take the same states, and check them first.
"""

import math
import pickle
import re
from typing import Any

import numpy

# booleans, integers, floats, complex numbers, bytes and text
PLAIN = re.compile(r"[<>=|]?(?:\?|[biufc]\d{1,2}|[bBhHiIlLqQefdgFDG]|[SU]\d{0,6})")


class PlainDtype:
    """A ``numpy.dtype`` that holds plain values.

    Args:
        code: numpy's name of the type, such as ``f8``.
        align, copy: as in ``numpy.dtype``; without meaning for plain types.

    Raises:
        UnpicklingError: the type holds objects or fields.
    """

    def __init__(self, code: str, align: bool = False, copy: bool = False) -> None:
        if not isinstance(code, str) or not PLAIN.fullmatch(code):
            raise pickle.UnpicklingError(f"a numpy type {code!r}, which holds more than numbers or text")
        try:
            self.dtype = numpy.dtype(code)
        except TypeError as error:
            raise pickle.UnpicklingError(f"a numpy type {code!r} that does not exist") from error

    def __setstate__(self, state: tuple) -> None:
        """Take the byte order of a pickled ``numpy.dtype``; everything else must be what the type's name says."""
        sizes = (-1, self.dtype.itemsize)
        if not (
            isinstance(state, tuple)
            and len(state) >= 6
            and state[1] in ("<", ">", "=", "|")
            and not any(state[2:5])  # the parts of a compound type
            and state[5] in sizes
        ):
            raise pickle.UnpicklingError("a numpy type whose description contradicts its name")
        self.dtype = self.dtype.newbyteorder(state[1])


class PlainArray(numpy.ndarray):
    """A ``numpy.ndarray`` from a checkpoint."""

    def __setstate__(self, state: tuple) -> None:
        """Take the shape, type and values of a pickled ``numpy.ndarray`` after checking that they fit together."""
        if not (isinstance(state, tuple) and len(state) == 5 and isinstance(state[2], PlainDtype)):
            raise pickle.UnpicklingError("a numpy array of something else than numbers or text")
        _, shape, plain, fortran, values = state
        if not (
            isinstance(shape, tuple)
            and all(type(size) is int and size >= 0 for size in shape)
            and isinstance(values, bytes)
            and len(values) == math.prod(shape) * plain.dtype.itemsize
        ):
            raise pickle.UnpicklingError("a numpy array whose shape does not fit its values")
        super().__setstate__((1, shape, plain.dtype, bool(fortran), values))

    def __reduce__(self) -> tuple:
        """Be saved as the ``numpy.ndarray`` that it was."""
        return numpy.asarray(self).__reduce__()


def reconstruct(array: type, shape: tuple, code: Any) -> PlainArray:
    """The empty array with which a pickled array begins."""
    return numpy.ndarray.__new__(PlainArray, (0,), "i1")


def scalar(plain: PlainDtype, value: bytes) -> numpy.generic:
    """A numpy scalar.

    Raises:
        UnpicklingError: the value does not fit the type.
    """
    if not isinstance(plain, PlainDtype) or not isinstance(value, bytes) or len(value) != plain.dtype.itemsize:
        raise pickle.UnpicklingError("a numpy scalar whose value does not fit its type")
    return numpy.frombuffer(value, plain.dtype)[0] if value else plain.dtype.type()


def allowed_globals() -> list[tuple[Any, str]]:
    """Entries for ``torch.serialization.add_safe_globals``, under the names of numpy 1 and of numpy 2."""
    functions = {"_reconstruct": reconstruct, "scalar": scalar}
    named = [
        (function, f"{module}.multiarray.{name}")
        for module in ("numpy._core", "numpy.core")
        for name, function in functions.items()
    ]
    return [(PlainArray, "numpy.ndarray"), (PlainDtype, "numpy.dtype"), *named]
