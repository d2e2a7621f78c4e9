"""The operator's implementations, in the order in which one is picked; ``sdpa`` is last, since it runs by name only.

Each has two functions: ``why_not(call) -> str | None`` gives the reason why it cannot run a call, and ``run(call) ->
Tensor`` runs it. One of compiled kernels also has ``self_check(call) -> str | None``: what goes wrong in a small
problem of the call's kind. Those of :data:`STAND_INS`, other people's kernels, run by name, and are picked on GPUs on
which the Triton kernels cannot run or fail their self-check; most processes never import them.
"""

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from torch import Tensor

from fairseq_poolingformer.attention.backends import reference, sdpa
from fairseq_poolingformer.attention.backends.block import backend as block_backend
from fairseq_poolingformer.attention.backends.triton import backend as triton_backend
from fairseq_poolingformer.attention.call import Call

STAND_INS = ("varlen", "flex")


@dataclass(frozen=True)
class _Later:
    """A backend that is imported when it is first asked."""

    name: str

    def _module(self) -> ModuleType:
        return import_module(f"{__name__}.{self.name}")

    def why_not(self, call: Call) -> str | None:
        return self._module().why_not(call)

    def run(self, call: Call) -> Tensor:
        return self._module().run(call)

    def self_check(self, call: Call) -> str | None:
        """What goes wrong on a GPU in a small problem of the call's kind; None where nothing does."""
        if call.query.device.type != "cuda":
            return None
        return import_module(f"{__name__}.self_check").failure(self.run, call)


BACKENDS: dict[str, Any] = {
    "triton": triton_backend,
    "varlen": _Later("varlen"),
    "flex": _Later("flex"),
    "block": block_backend,
    "reference": reference,
    "sdpa": sdpa,
}
