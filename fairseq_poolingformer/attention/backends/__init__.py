"""The operator's implementations, fastest first; ``sdpa`` is last, since it runs by name only.

Each is a module with two functions: ``why_not(call) -> str | None`` gives the reason why it cannot run a call, and
``run(call) -> Tensor`` runs it. One of compiled kernels also has ``self_check(call) -> str | None``: what goes wrong in
a small problem of the call's kind.
"""

from fairseq_poolingformer.attention.backends import reference, sdpa
from fairseq_poolingformer.attention.backends.block import backend as block_backend
from fairseq_poolingformer.attention.backends.triton import backend as triton_backend

BACKENDS = {"triton": triton_backend, "block": block_backend, "reference": reference, "sdpa": sdpa}
