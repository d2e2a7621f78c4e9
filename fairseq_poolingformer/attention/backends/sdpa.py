"""PyTorch's own attention, for windows that show every query every key, and for decoders on a GPU.

As a backend it runs by name only, since its results depend on padding up to rounding; layers name it on a CPU where a
window is as wide as the text, since it is about three times as fast as blocks there.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention.backends.plan import dense, zero_padding
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.masks import Masks
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
    # its kernels for 16 bits on a CPU take no vectors that overlap in their backward pass
    key, value = (zero_padding(dense(x), call.key_padding_mask) for x in (call.key, call.value))
    return attend(dense(call.query), key, value, call.masks, dropout_p=call.dropout_p, scale=call.scale)


def takes(x: Tensor) -> bool:
    """Whether decoders take :func:`attend` for tensors like ``x``."""
    return x.device.type == "cuda" and x.dtype != torch.float64


def attend(query: Tensor, key: Tensor, value: Tensor, masks: Masks, is_causal: bool = False, **named: Any) -> Tensor:
    """Attention to all keys but padding, whose keys and values are finite; or causal, with padding on the right.

    Outputs of causal queries at padding, and of rows that are padding alone, mean nothing, but are finite.
    """
    mask = None if is_causal or masks.padding is None else masks.derived(_mask, query.dtype)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=is_causal, **named)


def _mask(masks: Masks, dtype: torch.dtype) -> Tensor:
    """(B, 1, 1, S) −∞ at padding, zeros elsewhere, and in rows without keys, where it would give NaN."""
    batch, length = masks.padding.shape
    hidden = masks.padding & ~masks.padding.all(1, keepdim=True)
    # PyTorch copies a mask at each call unless its rows begin at multiples of 16 bytes; a graph would take
    # a mask without unused columns for another kind
    mask = torch.zeros(batch, 1, 1, (length // 8 + 1) * 8, dtype=dtype, device=hidden.device)[..., :length]
    return mask.masked_fill_(hidden[:, None, None], -torch.inf)
