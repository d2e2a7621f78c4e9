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


def command_modules(name: str) -> list[ModuleType]:
    """Return a module, and its second copy where ``python -m`` runs it as ``__main__``, as it does commands of fairseq.

    The import leaves logging as it is: a command's module would configure it for the whole process.

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


def find(patch: str) -> Callable:
    """Import a patch by its module and name below this package: ``long_jobs.saving.write_checkpoint_whole``."""
    module, _, name = patch.rpartition(".")
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)


def replace_later(place: str, patch: str) -> None:
    """Replace a function of fairseq by a patch of this package, whose module is imported when it is first called.

    Args:
        place: Module and name, such as ``fairseq.trainer:Trainer.train_step``. A name that goes through a library, such
            as ``fairseq.trainer:torch.tensor``, is replaced for that module alone.
        patch: As :func:`find` takes it.

    Raises:
        AttributeError: There is no such place.
    """

    def called_later(*arguments: Any, **named: Any) -> Any:
        return find(patch)(*arguments, **named)

    called_later.__qualname__ = patch
    module, _, names = place.partition(":")
    *outer, name = names.split(".")
    for owner in command_modules(module):
        for part in outer:
            owner = stand_in(owner, part) if isinstance(getattr(owner, part), ModuleType) else getattr(owner, part)
        replace(owner, name, called_later)


def replace(owner: Any, name: str, patch: Callable) -> None:
    """Have ``patch(original, …)`` called in place of ``owner.name(…)``, unless that has been done already.

    Several patches of one name go around one another, the latest outermost.

    A missing name raises: a patch that silently does not apply would bring back the fault it fixes.

    Args:
        owner: The module or class that holds the function or property.
        name: Its name there.
        patch: Takes the original function, then its arguments; for a class method, the class is the first of these.

    Raises:
        AttributeError: ``owner`` has no such name.
    """
    held = getattr(owner, name) if isinstance(owner, ModuleType) else inspect.getattr_static(owner, name)
    original = held.__func__ if isinstance(held, classmethod | staticmethod) else held
    original = held.fget if isinstance(held, property) else original
    key, before = (patch.__module__, patch.__qualname__), getattr(original, "_patched_by", ())
    if key in before:
        return

    @functools.wraps(original)
    def patched(*arguments: Any, **named: Any) -> Any:
        return patch(original, *arguments, **named)

    patched._patched_by = (*before, key)
    setattr(owner, name, type(held)(patched) if isinstance(held, classmethod | staticmethod | property) else patched)


class _StandIn(ModuleType):
    """Another module under the same names, some of which may be replaced without changing that module."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def stand_in(owner: ModuleType, name: str) -> ModuleType:
    """Let a module see a library through a stand-in, whose names can be changed for that module alone; return it."""
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
