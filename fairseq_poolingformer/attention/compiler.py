"""Functions that torch.compile must not trace, and whether torch.export is tracing."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def outside_the_compiler(function: Callable[P, R]) -> Callable[P, R]:
    """Like :func:`torch.compiler.disable`: compiled code leaves its graph for the function and continues after it.

    ``torch.compiler.disable`` imports the compiler, which takes longer than the rest of this package; here it is
    imported only where something else has done so.
    """

    disabled: list[Callable[P, R]] = []  # not functools.cache, of which the compiler warns

    @functools.wraps(function)
    def eager(*args: P.args, **kwargs: P.kwargs) -> R:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    return eager


def exporting() -> bool:
    """Whether torch.export traces the model, and so may not look at the data; False before PyTorch 2.7."""
    return hasattr(torch.compiler, "is_exporting") and torch.compiler.is_exporting()
