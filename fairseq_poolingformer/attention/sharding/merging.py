"""Attention to the keys of all ranks, merged from what each rank attends to."""

from __future__ import annotations

from torch import Tensor

from fairseq_poolingformer.attention.merging import merge_softmax
from fairseq_poolingformer.attention.sharding.exchange import stacked
from fairseq_poolingformer.attention.sharding.ranks import Ranks


def merged_over_ranks(ranks: Ranks, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """One softmax over the keys of all ranks, the same on each: ``out = Σ_r exp(lse_r − lse)·out_r``.

    Each rank sends its output and logarithm to every other, whatever the number of its keys; the backward pass sends
    their gradients back. So each rank may count a part of the loss.

    Args:
        ranks: all of them call this, with the same queries.
        out: (…, D) the queries' output over this rank's keys.
        lse: (…) the natural logarithm of its softmax's denominator; -inf where a query sees none of these keys.

    Returns:
        The output (…, D) and the logarithm (…), in the dtype of ``lse``; zeros and -inf where a query sees nothing.
    """
    return merge_softmax(list(zip(*stacked(ranks, out, lse), strict=True)))
