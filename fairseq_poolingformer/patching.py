"""Replacing functions of fairseq, each once, with the original kept."""

import contextlib
import functools
import importlib
import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any


def command_module(name: str) -> ModuleType:
    """Import a command's module, such as ``fairseq_cli.train``, which would configure logging for the whole process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    module = importlib.import_module(name)
    root.handlers[:] = handlers
    root.setLevel(level)
    return module


def copies(owner: Any) -> list[Any]:
    """Holders of a function: the owner, and a module's second copy where ``python -m`` runs it as ``__main__``."""
    running = sys.modules["__main__"]
    spec = getattr(running, "__spec__", None)
    is_running = isinstance(owner, ModuleType) and spec is not None and spec.name == owner.__name__
    return [owner, running] if is_running and running is not owner else [owner]


def replace(owner: Any, name: str, patch: Callable) -> None:
    """Have ``patch(original, …)`` called in place of ``owner.name(…)``, once; the last of several is outermost."""
    # a missing name raises: a patch that silently does not apply would bring back the fault it fixes
    for holder in copies(owner):
        held = _held(holder, name)
        original = held.__func__ if isinstance(held, classmethod | staticmethod) else held
        before = getattr(original, "_patched_by", ())
        if patch not in before:
            around = _around(original, patch)
            around._patched_by = (*before, patch)
            setattr(holder, name, type(held)(around) if isinstance(held, classmethod | staticmethod) else around)


def _around(original: Callable, patch: Callable) -> Any:
    @functools.wraps(original)
    def patched(*arguments: Any, **named: Any) -> Any:
        return patch(original, *arguments, **named)

    return patched


def substitute(owner: Any, name: str, function: Callable) -> None:
    """Put a function in the place of ``owner.name``, where TorchScript must be able to read its source."""
    held = _held(owner, name)
    if held is not function:
        function.replaced = held
        setattr(owner, name, function)


def _held(owner: Any, name: str) -> Any:
    where = owner.__name__
    try:
        return getattr(owner, name) if isinstance(owner, ModuleType) else inspect.getattr_static(owner, name)
    except AttributeError as error:
        raise AttributeError(
            f"{where}.{name} is not there: this version of fairseq differs from fairseq-fixed 0.12.3.1, for which the "
            "plugin is made; install that one"
        ) from error


class _StandIn(ModuleType):
    """Another module under the same names, some of which may be replaced without changing that module."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def stand_in(owner: ModuleType, name: str) -> ModuleType:
    """Replace a library in one module by a stand-in, whose names can be changed for that module alone; return it."""
    library = getattr(owner, name)
    if not isinstance(library, _StandIn):
        library = _StandIn(library)
        setattr(owner, name, library)
    return library


@contextlib.contextmanager
def set_within(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute within the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
