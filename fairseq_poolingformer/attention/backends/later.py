"""Backends and checks that are imported when they are first asked for: most processes never need them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from torch import Tensor

from fairseq_poolingformer.attention.call import Call

FOLDER = __name__.rpartition(".")[0]


def failure_on_gpu(run: Callable[[Call], Tensor], call: Call) -> str | None:
    """What a backend's self-check finds for a call on a GPU; None for nothing, and on other devices."""
    if call.query.device.type != "cuda":
        return None
    return import_module(f"{FOLDER}.self_check").failure(run, call)


@dataclass(frozen=True)
class Later:
    """A backend by the name of its module."""

    name: str

    def _module(self) -> ModuleType:
        return import_module(f"{FOLDER}.{self.name}")

    def why_not(self, call: Call) -> str | None:
        """The reason why it cannot run a call."""
        return self._module().why_not(call)

    def run(self, call: Call) -> Any:
        """See :func:`fairseq_poolingformer.attention.band_attention`."""
        return self._module().run(call)

    def self_check(self, call: Call) -> str | None:
        """What goes wrong on a GPU in a small problem of the call's kind; None where nothing does."""
        return failure_on_gpu(self.run, call)


VARLEN, FLEX = Later("varlen"), Later("flex")
