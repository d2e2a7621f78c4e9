"""The oracle: dense, quadratic, written from the equations; for tests and for reading."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention.backends.plan import zero_padding
from fairseq_poolingformer.attention.call import Call, Pairs
from fairseq_poolingformer.attention.patterns import visible_pairs


def why_not(call: Call) -> str | None:
    """None: it can run every call."""
    return None


def visibility(call: Call) -> Tensor:
    """Which keys each query sees: (B, H, T, S) bool, expanded."""
    batch, heads, queries, _ = call.query.shape
    keys, device = call.key.size(2), call.query.device
    seen = visible_pairs(call.window, call.pooling, heads, call.query_offset, queries, keys).to(device)
    seen = seen.expand(batch, heads, queries, keys)
    if call.global_mask is not None:
        seen = seen | with_global(call)[:, None]
    if call.key_padding_mask is not None:
        seen = seen & ~call.key_padding_mask[:, None, None, :]
    return seen


def with_global(call: Call) -> Tensor:
    """Which pairs have a global token: (B, T, S) bool; for calls with a global mask."""
    queries, keys = call.query.size(2), call.key.size(2)
    position = torch.arange(call.query_offset, call.query_offset + queries, device=call.query.device)
    inside = (position >= 0) & (position < keys)
    global_query = call.global_mask[:, position.clamp(0, keys - 1)] & inside & call.masks.global_queries
    return call.global_mask[:, None, :] | global_query[:, :, None]


def run(call: Call) -> Any:
    """``softmax(scale·QKᵀ + terms) V`` over the keys that each query sees; zero where it sees none."""
    query, padding = call.query, call.key_padding_mask
    padding = None if padding is None else padding.clone()  # the caller may change it before the backward pass
    key, value = zero_padding(call.key, padding), zero_padding(call.value, padding)
    queries, keys = (torch.arange(x.size(2), device=x.device) for x in (query, key))
    with_one = False if call.global_mask is None else with_global(call)
    pairs = Pairs.of(call, queries, keys, query, key, with_one)
    if query.dtype == torch.float16:  # it ends at 65,504, scores do not
        query, key = query.float(), key.float()
    scores = call.scale * query @ key.transpose(-1, -2)
    for term in call.score_terms:
        scores = scores + term.scores(pairs)
    scores = scores.masked_fill(~visibility(call), -torch.inf)
    out = F.dropout(softmax_or_zeros(scores).to(value.dtype), call.dropout_p) @ value
    return (out, log_denominator(scores)) if call.return_lse else out


def softmax_or_zeros(scores: Tensor) -> Tensor:
    """Softmax over the last dimension; zeros where all scores are -inf, since score terms may hide pairs as well."""
    blind = scores.amax(-1, keepdim=True) == -torch.inf
    return scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)


def log_denominator(scores: Tensor) -> Tensor:
    """Natural logarithm of the softmax's denominator, in 32 bits at least; -inf, without a gradient, for no score."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    blind = scores.amax(-1) == -torch.inf
    return scores.masked_fill(blind.unsqueeze(-1), 0.0).logsumexp(-1).masked_fill(blind, -torch.inf)
