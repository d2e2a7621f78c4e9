"""Freed memory is kept where models are trained on a CPU."""

import torch

from fairseq_poolingformer.attention import keep_freed_memory


def apply() -> None:
    """Call :func:`~fairseq_poolingformer.attention.keep_freed_memory` on a machine without a GPU.

    With a GPU the tensors that come and go are there, and the processes of a node would keep what loading and saving
    checkpoints took.
    """
    if not torch.cuda.is_available():
        keep_freed_memory()
