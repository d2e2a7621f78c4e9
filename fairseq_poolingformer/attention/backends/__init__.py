"""The operator's implementations, in the order in which one is picked; ``sdpa`` is last, since it runs by name only.

Each has two functions: ``why_not(call) -> str | None`` gives the reason why it cannot run a call, and ``run(call) ->
Tensor`` runs it. One of compiled kernels also has ``self_check(call) -> str | None``: why a small problem of the call's
variant fails.
"""

from typing import Any

from fairseq_poolingformer.attention.backends import reference, sdpa
from fairseq_poolingformer.attention.backends.block import backend as block_backend
from fairseq_poolingformer.attention.backends.triton import backend as triton_backend
from fairseq_poolingformer.choices import BACKEND_NAMES

BACKENDS: dict[str, Any] = dict(zip(BACKEND_NAMES, (triton_backend, block_backend, reference, sdpa), strict=True))
