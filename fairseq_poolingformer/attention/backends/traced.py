"""The operator for torch.export and ONNX: plain tensor operations, memory linear in the length, no look at the data.

It takes the place of the other backends while a model is exported, and is no choice otherwise: it makes a copy of the
keys and values for every block of queries.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends import reference
from fairseq_poolingformer.attention.backends.reference import softmax_or_zeros
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.patterns import Band, band_of
from fairseq_poolingformer.choices import UNLIMITED

QUERIES_PER_BLOCK = 64


def run(call: Call) -> Any:
    """``softmax(scale·QKᵀ) V`` in blocks of queries; dense, and of one length, where the call is no plain band."""
    band = band_of(call.window, call.pooling)
    plain = call.window.dilation == 1 and band.step == 1 and max(call.window.left, call.window.right) < UNLIMITED
    unusual = call.score_terms or call.query_offset or call.dropout_p or call.return_lse
    if not plain or QUERIES_PER_BLOCK % band.key_stride or unusual:
        return reference.run(call)
    scores, values = _band(call, band)
    if call.masks.global_tokens is None:
        return _attend(call, scores, values)
    return _with_globals(call, scores, values)


def _query_blocks(call: Call) -> Tensor:
    """The queries in blocks, (B, H, N, t, D), filled up with copies of the last one."""
    # two blocks or more, since torch.export takes a number that can be 1 for a constant; gathered, since it would
    # forbid lengths at which padding to whole blocks adds nothing
    num_queries, size, device = call.query.size(2), QUERIES_PER_BLOCK, call.query.device
    blocks = torch.arange((num_queries + size - 1) // size + 1, device=device)
    return call.query[:, :, (size * blocks[:, None] + torch.arange(size, device=device)).clamp(max=num_queries - 1)]


def _band(call: Call, band: Band) -> tuple[Tensor, Tensor]:
    """Scores (B, H, N, t, K) of each of the N blocks of queries with the keys that it can see, and their values."""
    query, num_keys, size = _query_blocks(call), call.key.size(2), QUERIES_PER_BLOCK
    first = -(-band.lowest // band.key_stride)  # the first key of block 0, which may lie before the sequence
    width = (band.highest + size - 1) // band.key_stride - first + 1
    device = call.query.device
    step, places = size // band.key_stride, torch.arange(width, device=device)
    keys = first + step * torch.arange(query.size(2), device=device)[:, None] + places  # (N, K)
    taken = keys.clamp(min=0).clamp(max=num_keys - 1)
    hidden = ((keys < 0) | (keys >= num_keys))[None]
    for mask in (call.key_padding_mask, call.global_mask):
        if mask is not None:
            hidden = hidden | mask[:, taken]
    # every block has the same distances
    seen = band.visible(torch.arange(size, device=device), first + places)
    scores = call.scale * query @ call.key[:, :, taken].transpose(-1, -2)
    return scores.masked_fill(~seen | hidden[:, None, :, None], -torch.inf), call.value[:, :, taken]


def _with_globals(call: Call, scores: Tensor, values: Tensor) -> Tensor:
    """The output, with the global tokens as further keys of every query, and as queries that see every key."""
    tokens, query = call.masks.global_tokens, _query_blocks(call)
    key, value = tokens.gather(call.key)[:, :, None], tokens.gather(call.value)[:, :, None]
    hidden = tokens.hidden(call.key_padding_mask)[:, None, None, None]
    to_global = (call.scale * query @ key.transpose(-1, -2)).masked_fill(hidden, -torch.inf)
    values = torch.cat([values, value.expand(-1, -1, query.size(2), -1, -1)], dim=3)
    out = _attend(call, torch.cat([scores, to_global], dim=4), values)
    from_global = call.scale * tokens.gather(call.query) @ call.key.transpose(-1, -2)
    if call.key_padding_mask is not None:
        from_global = from_global.masked_fill(call.key_padding_mask[:, None, None], -torch.inf)
    return tokens.replaced(out, softmax_or_zeros(from_global) @ call.value)


def _attend(call: Call, scores: Tensor, values: Tensor) -> Tensor:
    """(B, H, T, D) from scores (B, H, N, t, K) and values (B, H, N, K, D)."""
    queries = torch.arange(call.query.size(2), device=scores.device)
    return (softmax_or_zeros(scores) @ values).flatten(2, 3)[:, :, queries]
