"""The operator's implementations, fastest first.

Each is a module with ``why_not(call) -> str | None``, the reason why it cannot run a call, and ``run(call) -> Tensor``.
"""

from fairseq_poolingformer.attention.backends import reference
from fairseq_poolingformer.attention.backends.block import backend as block
from fairseq_poolingformer.attention.backends.triton import backend as triton

BACKENDS = {"triton": triton, "block": block, "reference": reference}
