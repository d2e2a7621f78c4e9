"""Other people's kernels, imported when they are first asked: most processes never need them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from torch import Tensor

from fairseq_poolingformer.attention.call import Call

FOLDER = __name__.rpartition(".")[0]


@dataclass(frozen=True)
class Later:
    """A backend by the name of its module."""

    name: str

    def _module(self) -> ModuleType:
        return import_module(f"{FOLDER}.{self.name}")

    def why_not(self, call: Call) -> str | None:
        """The reason why it cannot run a call."""
        return self._module().why_not(call)

    def run(self, call: Call) -> Tensor:
        """See :func:`fairseq_poolingformer.attention.band_attention`."""
        return self._module().run(call)

    def self_check(self, call: Call) -> str | None:
        """What goes wrong on a GPU in a small problem of the call's kind; None where nothing does."""
        if call.query.device.type != "cuda":
            return None
        return import_module(f"{FOLDER}.self_check").failure(self.run, call)


VARLEN, FLEX = Later("varlen"), Later("flex")
