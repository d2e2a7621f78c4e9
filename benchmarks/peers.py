"""FlexAttention as a backend of the operator, beside which this project's are timed.

Importing this module adds it to the operator's backends as ``flex``; it is chosen by name only. It takes what the
benchmarks ask for and refuses the rest with a reason: no padding, no score terms, and as global tokens the first ones
of a row.

FlexAttention (PyTorch 2.5 and later) has no backward pass on a CPU, in no release up to 2.13. There it gives outputs
only, uncompiled, for comparison with the reference. On a GPU it is compiled, once for each mask and length.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention import BACKENDS
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.patterns import UNLIMITED, Band, band_of

FLEX_BLOCK = 128  # tokens; FlexAttention's own, which other lengths would only end with a part of


def _why_not_in_general(call: Call) -> str | None:
    """The reason why it cannot run a call, whatever the device."""
    if call.key_padding_mask is not None:
        return "it takes no padding here"
    if call.score_terms:
        return "it takes no score terms here"
    if call.query_offset or call.key_offset or call.window.dilation != 1:
        return "it takes windows without dilation, over keys that begin where the queries do"
    return None


def _why_not_flex(call: Call) -> str | None:
    if call.dropout_p:
        return "FlexAttention has no dropout"
    if max(call.window.left, call.window.right) >= UNLIMITED:
        return "it takes windows that end; full attention is sdpa's"
    if call.query.size(2) % FLEX_BLOCK or call.key.size(2) % FLEX_BLOCK:
        return f"it takes multiples of {FLEX_BLOCK} queries and keys here"
    tensors = (call.query, call.key, call.value)
    if call.query.device.type == "cpu" and torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return "FlexAttention has no backward pass on a CPU"
    return _why_not_in_general(call)


def _run_flex(call: Call) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    num_globals = 0 if call.global_tokens is None else call.global_tokens.num_slots
    device = call.query.device
    band = band_of(call.window, call.pooling)
    mask = _block_mask(band, num_globals, call.query.size(2), call.key.size(2), str(device))
    if device.type != "cpu":
        return _compiled()(call.query, call.key, call.value, block_mask=mask, scale=call.scale)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        return flex_attention(call.query, call.key, call.value, block_mask=mask, scale=call.scale)


@cache
def _compiled() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def mask_of(band: Band, num_globals: int) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """FlexAttention's function of batch, head, query and key: whether the query sees the key.

    Args:
        band: of the window; every place in it is visible.
        num_globals: the first tokens that see all and are seen by all.
    """
    lowest, highest, stride = band.lowest, band.highest, band.key_stride

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        distance = stride * key - query
        near = (distance >= lowest) & (distance <= highest)
        return near | (query < num_globals) | (key < num_globals) if num_globals else near

    return sees


@cache
def _block_mask(band: Band, num_globals: int, num_queries: int, num_keys: int, device: str):
    """The blocks of pairs that FlexAttention visits, made once and kept, as its users do."""
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(mask_of(band, num_globals), None, None, num_queries, num_keys, device=device)


BACKENDS["flex"] = SimpleNamespace(why_not=_why_not_flex, run=_run_flex)


def unfold_attention(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """Sliding-window attention as it is written without kernels: unfolded copies of the keys, then SDPA.

    Args:
        query, key, value: (B, H, T, D), T a multiple of the window.
        window: tokens on each side, and the size of a block of queries.
    """
    batch, heads, length, head_dim = query.shape
    blocks = length // window

    def unfolded(x: Tensor) -> Tensor:
        padded = F.pad(x, (0, 0, window, window))
        return padded.unfold(2, 3 * window, window).transpose(-1, -2)  # (B, H, blocks, 3·window, D)

    distance = torch.arange(3 * window, device=query.device) - window
    distance = distance[None, :] - torch.arange(window, device=query.device)[:, None]
    position = torch.arange(blocks, device=query.device)[:, None] * window - window
    position = position + torch.arange(3 * window, device=query.device)
    inside = (position >= 0) & (position < length)
    mask = (distance.abs() <= window)[None] & inside[:, None]
    out = F.scaled_dot_product_attention(
        query.view(batch, heads, blocks, window, head_dim), unfolded(key), unfolded(value), attn_mask=mask
    )
    return out.reshape(query.shape)
