"""Replacing one function of fairseq, once, with the original kept."""

import functools
import inspect
from collections.abc import Callable
from typing import Any


def replace(owner: Any, name: str, make: Callable[[Callable], Callable]) -> None:
    """Replace ``owner.name`` by ``make(original)``, unless that has been done already.

    A missing name raises: a patch that silently does not apply would bring back the fault it fixes.

    Args:
        owner: The module or class that holds the function.
        name: The function's name there.
        make: Takes the original function and returns the one to use; for a class method, the plain function whose
            first argument is the class.

    Raises:
        AttributeError: ``owner`` has no such name.
    """
    held = inspect.getattr_static(owner, name)
    original = held.__func__ if isinstance(held, classmethod) else held
    if hasattr(original, "_patched_by_compat"):
        return
    patched = functools.wraps(original)(make(original))
    patched._patched_by_compat = True
    setattr(owner, name, classmethod(patched) if isinstance(held, classmethod) else patched)
