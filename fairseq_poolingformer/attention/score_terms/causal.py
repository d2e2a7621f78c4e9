"""Score terms of causal language models by distance: relative positions, adaptive spans.

Distances are i − j, position of the query minus position of the key; in a causal window they are 0, 1, 2, ….
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention.score_terms.disentangled import DisentangledPosition
from fairseq_poolingformer.attention.score_terms.relative_bias import RelativePositionBias

LEAST_WEIGHT = 1e-20  # too small to change a sum in float64; the gradient of its logarithm, 1e20, fits float32


def content_to_distance(table: Tensor, reach: int) -> DisentangledPosition:
    """``score[h, i, j] = α q_i·table[h, i − j]`` (Shaw et al. 2018; terms b and d of Dai et al. 2019 §3.3).

    With Transformer-XL's u and v, pass q + u to the operator as query. The rest, α (v − u)·table[h, i − j], depends on
    the distance alone and is a :func:`distance_bias`.

    Args:
        table: (H, K, D), a row for each distance.
        reach: the farthest distance that the window shows, in tokens. Where it exceeds K − 1, no keys may be so far.
    """
    num_distances = max(table.size(1), reach + 1)
    return DisentangledPosition(c2p=F.pad(table, (0, 0, num_distances, num_distances - table.size(1))))


def distance_bias(scores: Tensor) -> RelativePositionBias:
    """``score[h, i, j] = scores[h, i − j]``.

    Args:
        scores: (H, K), one for each distance that a key may have; -inf hides the keys at a distance.
    """
    return RelativePositionBias(F.pad(scores, (scores.size(1) - 1, 0)))


def log_span_mask(span: Tensor, ramp: int, num_distances: int, nearest: int = 0) -> Tensor:
    """log m(x), ``m(x) = clamp((R + span − x)/R, 0, 1)`` (Sukhbaatar et al. 2019 §2.2; GAA eq. 1).

    Added to the scores, it multiplies the weights by m before they are normalized. x counts from the nearest byte that
    is seen: the distance itself, or the distance less 1 where a byte does not see itself, as in the published code.
    There a key at a mask of exactly 0 has no weight, but passes its gradient to the span, as ``torch.clamp`` does; its
    weight is 1e-20 times as large here.

    Args:
        span: (H,) distance up to which a head sees fully, in tokens; float32 or float64.
        ramp: R, tokens over which m falls to 0.
        num_distances: K.
        nearest: the nearest distance that is seen, 0 or 1.

    Returns:
        (H, K) for the distances 0 … K − 1; -inf beyond R + span and for distances before ``nearest``.
    """
    x = torch.arange(num_distances, device=span.device) - nearest
    mask = (ramp + span[:, None] - x) / ramp
    hidden = (mask < 0.0) | (x < 0)
    return (mask + LEAST_WEIGHT).clamp(max=1.0).masked_fill(hidden, 1.0).log().masked_fill(hidden, -torch.inf)
