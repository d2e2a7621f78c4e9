"""Registering the plugin with fairseq: a task, loss or optimizer is imported when its name is first looked up.

Architectures are registered at once: their flags, which ``--arch`` needs, are in the same modules.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from types import FunctionType
from typing import Any

from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.tasks import registry

PACKAGE = __package__
# fairseq's registry -> name -> the module that registers it; the tasks of this package are added to these
LATER: dict[str, dict[str, str]] = {
    "task": {},
    "criterion": {
        "char_lm": f"{PACKAGE}.char_lm.loss",
        "document_task": f"{PACKAGE}.tasks.shared.task",
        "linear_cross_entropy": f"{PACKAGE}.training.linear_cross_entropy",
        "long_masked_lm": f"{PACKAGE}.tasks.masked_lm.loss",
        "question_answering": f"{PACKAGE}.tasks.question_answering.loss",
    },
    "optimizer": dict.fromkeys(("clipped_adagrad", "fused_adamw"), f"{PACKAGE}.training.optimizers"),
    "lr_scheduler": {"staged": f"{PACKAGE}.training.staged_lr"},
    "scoring": {"rouge": f"{PACKAGE}.tasks.summarization.scorer"},
}


def register(names: Iterable[str] | None = None) -> None:
    """Register everything; doing so again changes nothing.

    Args:
        names: of the tasks whose architectures are registered; None for all.
    """
    from fairseq import tasks
    from fairseq.registry import REGISTRIES

    found = tuple(registry.tasks().values())
    for task in found:
        if task.package.startswith(f"{PACKAGE}."):
            LATER["task"][task.name] = f"{task.package}.task"
    kinds = {**REGISTRIES, "task": {"": tasks.TASK_REGISTRY, "dataclasses": tasks.TASK_DATACLASS_REGISTRY}}
    pairs = [(entries, modules) for kind, modules in LATER.items() for entries in kinds[kind].values()]
    _with_later_entries([(entries, modules) for entries, modules in pairs if type(entries) is dict])
    for task in found:
        if names is None or task.name in names:
            import_module(task.models)
            if task.name not in LATER["task"]:  # of another package
                task.register()


class LazyRegistry(dict):
    """A registry of fairseq, some of whose entries are imported when they are looked up.

    Iterating over keys imports nothing, so that ``--help`` and ``choices`` have all names.

    Args:
        entries: those that are there.
        modules: of the others, name -> the module that registers it.
    """

    def __init__(self, entries: Mapping[str, Any], modules: Mapping[str, str]) -> None:
        super().__init__(entries)
        self.update({name: _Later(module) for name, module in modules.items() if name not in entries})

    def __getitem__(self, name: str) -> Any:
        self._load(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        """Whether there is such an entry, which is imported; not while its own module is about to register it."""
        self._load(name)
        return super().__contains__(name) and not isinstance(super().__getitem__(name), _Later)

    def __iter__(self) -> Iterator[str]:  # without this, {**registry} would copy entries that are not imported
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        """As a dictionary's, of the entry that is imported."""
        self._load(name)
        entry = super().get(name, default)
        return default if isinstance(entry, _Later) else entry

    def values(self) -> list[Any]:
        """All entries, imported."""
        return [self[name] for name in list(self) if name in self]

    def items(self) -> list[tuple[str, Any]]:
        """All entries with their names, imported."""
        return [(name, self[name]) for name in list(self) if name in self]

    def _load(self, name: object) -> None:
        entry = super().get(name)
        if isinstance(entry, _Later) and entry.module not in sys.modules:
            with needing("fairseq"):
                import_module(entry.module)
            if super().get(name) is entry:  # it has no such entry in this registry
                del self[name]


class _Later:
    """Stands for an entry that is not imported yet."""

    def __init__(self, module: str) -> None:
        self.module = module


def _with_later_entries(registries: list[tuple[dict[str, Any], Mapping[str, str]]]) -> None:
    """Have fairseq, and whoever else holds one of its registries, use a :class:`LazyRegistry` in its place."""
    from fairseq.registry import REGISTRIES

    if not registries:
        return
    lazy = {id(entries): LazyRegistry(entries, modules) for entries, modules in registries}
    for entries, modules in registries:
        for name in modules:
            entries.setdefault(name, None)  # a parser that was made before has its keys as choices
    holders = [*REGISTRIES.values(), *(getattr(module, "__dict__", {}) for module in list(sys.modules.values()))]
    for holder in holders:
        for name, held in list(holder.items()):
            if id(held) in lazy:
                holder[name] = lazy[id(held)]
            elif type(held) is FunctionType and held.__module__ == "fairseq.registry":
                for cell in held.__closure__ or ():
                    cell.cell_contents = lazy.get(id(cell.cell_contents), cell.cell_contents)
