"""Functions that torch.compile must not trace, a property that it can, and whether torch.export is tracing."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, overload

import torch

P = ParamSpec("P")
R = TypeVar("R")


class lazy_property(Generic[R]):
    """:class:`functools.cached_property` without a lock, which compiled functions cannot hold before Python 3.12."""

    def __init__(self, function: Callable[[Any], R]) -> None:
        self.function, self.__doc__ = function, function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> lazy_property[R]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> R: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        value = for_later(self.function, instance)
        if keeps_tensors():
            instance.__dict__[self.function.__name__] = value
        return value


def for_later(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """``function(…)`` outside of inference mode, whose tensors no later training can save for its backward pass."""
    if torch.compiler.is_compiling():
        return function(*args, **kwargs)
    with torch.inference_mode(False):
        return function(*args, **kwargs)


def keeps_tensors() -> bool:
    """Whether new tensors may be cached; those of a fake mode have no numbers."""
    return torch.compiler.is_compiling() or type(torch.empty(0)) is torch.Tensor


def outside_the_compiler(function: Callable[P, R]) -> Callable[P, R]:
    """Like :func:`torch.compiler.disable`, but imports the compiler only where something else has done so."""

    disabled: list[Callable[P, R]] = []  # not functools.cache, of which the compiler warns

    @functools.wraps(function)
    def eager(*args: P.args, **kwargs: P.kwargs) -> R:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    return eager
