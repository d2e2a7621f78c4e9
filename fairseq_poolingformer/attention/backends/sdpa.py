"""PyTorch's own attention, for calls in which every query sees every key."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.patterns import band_of


def why_not(call: Call) -> str | None:
    """The reason why it cannot run a call."""
    if call.score_terms:
        return "it takes no score terms"
    if call.dropout_p and call.query.device.type == "cpu":
        return "its dropout on a CPU keeps all weights in memory"
    start, queries, keys = call.query_offset, call.query.size(2), call.key.size(2)
    dilations = set(call.window.head_dilations(call.query.size(1)))
    if all(
        band_of(call.window, call.pooling, dilation).covers(range(start, start + queries), range(keys))
        for dilation in dilations
    ):
        return None
    return "it is full attention: every query must see every key"


def run(call: Call) -> Tensor:
    """See :func:`fairseq_poolingformer.attention.band_attention`."""
    mask, blind = None, None
    if call.key_padding_mask is not None:
        blind = call.key_padding_mask.all(1)[:, None]
        mask = ~(call.key_padding_mask & ~blind)[:, None, None]  # a row without keys would give NaN
    out = F.scaled_dot_product_attention(
        call.query, call.key, call.value, attn_mask=mask, dropout_p=call.dropout_p, scale=call.scale
    )
    return out if blind is None else out.masked_fill(blind[:, :, None, None], 0.0)
