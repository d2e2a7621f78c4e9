"""PyTorch's own attention, for windows that show every query every key.

It runs by name only, since its results depend on padding up to rounding; layers name it on a CPU where a window is as
wide as the text, since it is about three times as fast as blocks there.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention.backends.plan import dense, zero_padding
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.patterns import band_of


def why_not(call: Call) -> str | None:
    """The reason why it cannot run a call."""
    if call.score_terms:
        return "it takes no score terms"
    if call.return_lse:
        return "its logarithms have no gradient"
    if call.dropout_p and call.query.device.type == "cpu":
        return "its dropout on a CPU keeps all weights in memory"
    band, start = band_of(call.window, call.pooling), call.query_offset
    if band.step != 1:
        return "it is full attention: a query sees only every ξ-th of its own pools"
    queries, keys = (start, start + call.query.size(2) - 1), (0, call.key.size(2) - 1)
    if call.window.dilation != 1 or not band.covers(queries, keys):
        return "it is full attention: the window must show every query every key"
    return None


def run(call: Call) -> Tensor:
    """See :func:`fairseq_poolingformer.attention.band_attention`."""
    mask, blind, padding = None, None, call.key_padding_mask
    if padding is not None:
        padding = padding.clone()  # the caller may change it before the backward pass
        blind = padding.all(1)[:, None]
        mask = ~(padding & ~blind)[:, None, None]  # a row without keys would give NaN
    # its kernels for 16 bits on a CPU take no vectors that overlap in their backward pass
    query = dense(call.query)
    key, value = zero_padding(dense(call.key), padding), zero_padding(dense(call.value), padding)
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=call.dropout_p, scale=call.scale)
    return out if blind is None else out.masked_fill(blind[:, :, None, None], 0.0)
