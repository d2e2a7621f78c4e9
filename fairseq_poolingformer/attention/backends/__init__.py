"""The operator's implementations, in the order in which one is picked; ``sdpa`` is last, since it runs by name only.

Each is a module with two functions: ``why_not(call) -> str | None`` gives the reason why it cannot run a call, and
``run(call) -> Tensor`` runs it. ``varlen`` and ``flex`` run by name, and are picked on GPUs that Triton's kernels
cannot run on.
"""

from fairseq_poolingformer.attention.backends import flex, reference, sdpa, varlen
from fairseq_poolingformer.attention.backends.block import backend as block_backend
from fairseq_poolingformer.attention.backends.triton import backend as triton_backend

BACKENDS = {
    "triton": triton_backend,
    "varlen": varlen,
    "flex": flex,
    "block": block_backend,
    "reference": reference,
    "sdpa": sdpa,
}
STAND_INS = ("varlen", "flex")
