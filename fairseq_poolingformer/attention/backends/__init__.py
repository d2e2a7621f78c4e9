"""The operator's implementations, fastest first.

Each is a module with ``why_not(call) -> str | None``, the reason why it cannot run a call, and ``run(call) -> Tensor``.
"""

from . import block, reference, triton

BACKENDS = {"triton": triton, "block": block, "reference": reference}
