"""Functions that torch.compile must not trace."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P, R = ParamSpec("P"), TypeVar("R")


def outside_the_compiler(function: Callable[P, R]) -> Callable[P, R]:
    """Like :func:`torch.compiler.disable`: compiled code leaves its graph for the function and continues after it.

    ``torch.compiler.disable`` imports the compiler, which takes longer than the rest of this package; here it is
    imported only where something else has done so.
    """

    @functools.wraps(function)
    def eager(*args: P.args, **kwargs: P.kwargs) -> R:
        run = _disabled(function) if "torch._dynamo" in sys.modules else function
        return run(*args, **kwargs)

    return eager


@functools.cache
def _disabled(function: Callable[P, R]) -> Callable[P, R]:
    return torch.compiler.disable(function)
