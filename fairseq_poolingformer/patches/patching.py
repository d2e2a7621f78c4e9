"""Replacing one function of fairseq, once, with the original kept."""

import contextlib
import functools
import importlib
import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any


def command_modules(name: str) -> list[ModuleType]:
    """Return the module of a fairseq command, and its second copy where ``python -m`` runs it as ``__main__``.

    The import leaves logging as it is: the module would configure it for the whole process.

    Args:
        name: The module, such as ``fairseq_cli.train``.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    modules = [importlib.import_module(name)]
    root.handlers[:] = handlers
    root.setLevel(level)
    running = sys.modules["__main__"]
    if getattr(getattr(running, "__spec__", None), "name", None) == name:
        modules.append(running)
    return modules


def replace(owner: Any, name: str, make: Callable[[Callable], Callable]) -> None:
    """Replace ``owner.name`` by ``make(original)``, unless that has been done already.

    Several patches of one name go around one another, the latest outermost.

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
    original = held.__func__ if isinstance(held, classmethod | staticmethod) else held
    patch, before = (make.__module__, make.__qualname__), getattr(original, "_patched_by_compat", ())
    if patch in before:
        return
    patched = functools.wraps(original)(make(original))
    patched._patched_by_compat = (*before, patch)
    setattr(owner, name, type(held)(patched) if isinstance(held, classmethod | staticmethod) else patched)


@contextlib.contextmanager
def set_within(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute within the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
