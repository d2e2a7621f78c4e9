"""PyTorch's FlexAttention: one compiled kernel whose masks and scores are functions of query and key.

The functions read windows, pools and offsets from tensors, and lengths and batches may vary, so that a model is not
compiled for each batch: once for the first sizes, and once more for all others. Calls with padding, with global tokens
or with score terms have functions of their own; single rows, and sequences of a single block, are compiled apart too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention.backends.plan import tensors_of
from fairseq_poolingformer.attention.backends.self_check import failure_on_gpu
from fairseq_poolingformer.attention.backends.triton.terms import FARTHEST, distance_table
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.patterns import band_of
from fairseq_poolingformer.attention.score_terms.relative_bias import RelativePositionBias

BLOCK = 128  # queries and keys of a block of pairs; FlexAttention's own
LEAST_HEAD_DIM = 16
VARIANTS = (
    64  # of a compiled kernel: dtypes, masks, score terms, passes, one row or several, each with lengths of 2 kinds
)


def why_not(call: Call) -> str | None:
    """It runs on GPUs, and takes no dropout, and of the score terms RelativePositionBias."""
    if call.dropout_p:
        return "FlexAttention has no dropout"
    if call.return_lse:
        return "it does not return logarithms"
    for term in call.score_terms:
        if not isinstance(term, RelativePositionBias):
            return f"it has no function for {type(term).__name__}"
    if call.query.dtype == torch.float64:
        return "it computes in float32, query is float64"
    if not call.query.size(0):
        return "it takes no empty batch"
    tables = tensors_of(call.score_terms)
    if torch.are_deterministic_algorithms_enabled() and any(x.requires_grad for x in tables):
        return "it sums a table's gradient in no fixed order, and torch is set to deterministic algorithms"
    return _why_not_here(call.query.device, call.query.dtype, call.query.size(-1)) or _why_not_this_pytorch()


def _why_not_here(device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
    if device.type != "cuda":  # for CPUs PyTorch compiles no gradients, and fails on some masks
        return f"it runs on GPUs, query is on {device}"
    from torch.utils._triton import has_triton

    if not has_triton():
        return "it needs Triton and a GPU that Triton compiles for"
    if dtype == torch.bfloat16 and not torch.version.hip and torch.cuda.get_device_capability(device) < (8, 0):
        return "in bfloat16 it needs compute capability 8.0 or later"
    if head_dim < LEAST_HEAD_DIM:
        return f"it takes head dimensions from {LEAST_HEAD_DIM}, query has {head_dim}"
    return None


def self_check(call: Call) -> str | None:
    """What goes wrong on the GPU in a small problem of the call's kind; None where nothing does."""
    return failure_on_gpu(run, call)


@cache
def _why_not_this_pytorch() -> str | None:
    try:
        from torch.nn.attention.flex_attention import BlockMask
    except ImportError:
        return f"PyTorch {torch.__version__} does not have FlexAttention"
    has_lengths = "seq_lengths" in inspect.signature(BlockMask.from_kv_blocks).parameters
    return None if has_lengths else f"the BlockMask of PyTorch {torch.__version__} takes whole blocks only"


def run(call: Call) -> Tensor:
    """See :func:`fairseq_poolingformer.attention.band_attention`."""
    mask = _made_before(_Places.of(call))
    arguments = {"score_mod": score_function(call), "block_mask": mask, "scale": call.scale}
    patched = torch._dynamo.config.patch(recompile_limit=VARIANTS)
    with patched, torch.autocast(call.query.device.type, enabled=False):
        return _compiled()(call.query, call.key, call.value, **arguments)


@cache
def _compiled() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, fullgraph=True)


@dataclass(frozen=True, eq=False)
class _Places:
    """A call without its numbers, equal to another one whose windows, sizes and very masks are the same."""

    call: Call
    identity: tuple[Any, ...]

    @classmethod
    def of(cls, call: Call) -> _Places:
        padding, version = call.key_padding_mask, None
        if padding is not None:  # changes of an inference tensor are not counted, so that no other call is the same
            version = object() if padding.is_inference() else padding._version
        masks = (id(padding), version, id(call.global_tokens), torch.is_inference_mode_enabled())
        sizes = (*call.query.shape[:3], call.key.size(2), call.query.device)
        identity = (call.window, call.pooling, call.query_offset, *sizes, *masks)
        query, key = (x.new_empty(1).expand(x.shape) for x in (call.query, call.key))
        return cls(replace(call, query=query, key=key, value=key, score_terms=()), identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Places) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)


@lru_cache(maxsize=8)
def _made_before(places: _Places) -> Any:
    """The block mask of a call, the same one for all layers that share their masks."""
    return block_mask(Pattern.of(places.call))


class Pattern(NamedTuple):
    """Who sees whom, as tensors."""

    num_queries: int  # T
    num_keys: int  # S
    # (4, H) int32, of each head the lowest and highest ``stride·key − query`` that a query sees, the step from one such
    # distance to the next, and the lowest's rest when it is divided by the step
    band: Tensor
    stride: Tensor  # (1,) int32, tokens between neighbouring keys
    heads_differ: bool  # whether the heads differ in their bands
    with_steps: bool  # whether any head has a step above 1
    padding: Tensor | None  # (B, S) bool, True at padded keys; None without any
    global_keys: Tensor | None  # (B, S) bool, True at global tokens; None without any
    global_queries: Tensor | None  # (B, T) bool, the same of the queries

    @classmethod
    def of(cls, call: Call) -> Pattern:
        device, (batch, heads, queries) = call.query.device, call.query.shape[:3]
        dilations = call.window.head_dilations(heads)
        rows = []
        for dilation in dilations:
            band = band_of(call.window, call.pooling, dilation)
            ends = (end + call.query_offset for end in (band.lowest, band.highest))
            lowest, highest = (min(max(end, -FARTHEST), FARTHEST) for end in ends)
            rows.append((lowest, highest, band.step, (band.lowest + call.query_offset) % band.step))
        padding, global_keys, global_queries = call.key_padding_mask, None, None
        if padding is not None:
            padding = padding.clone()  # the caller may change it before the backward pass
        if call.global_keys() is not None:
            global_keys, tokens = call.global_mask, call.global_queries()
            global_queries = global_keys.new_zeros(batch, queries) if tokens is None else tokens.mask
        return cls(
            num_queries=queries,
            num_keys=call.key.size(2),
            band=torch.tensor(rows, dtype=torch.int32, device=device).T.contiguous(),
            stride=torch.tensor([call.key_stride], dtype=torch.int32, device=device),
            heads_differ=len(set(rows)) > 1,
            with_steps=max(step for _, _, step, _ in rows) > 1,
            padding=padding,
            global_keys=global_keys,
            global_queries=global_queries,
        )


def mask_function(pattern: Pattern) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """FlexAttention's function of batch, head, query and key: whether the query sees the key."""
    band, stride, with_steps = pattern.band, pattern.stride, pattern.with_steps
    padding, global_keys, global_queries = pattern.padding, pattern.global_keys, pattern.global_queries

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        distance = stride[0] * key - query
        seen = (distance >= band[0, head]) & (distance <= band[1, head])
        if with_steps:
            seen = seen & ((distance - band[3, head]) % band[2, head] == 0)
        if global_keys is not None:
            seen = seen | global_keys[batch, key] | global_queries[batch, query]
        return seen if padding is None else seen & ~padding[batch, key]

    return sees


def score_function(call: Call) -> Callable[..., Tensor] | None:
    """FlexAttention's function that adds the score terms to a score; None without any."""
    table = distance_table(call.query.size(1), call.score_terms)
    if table is None:
        return None
    table = table.clone(memory_format=torch.contiguous_format)  # compiled, a view gets no gradient (torch 2.13)
    numbers = (call.query_offset - call.key_offset, call.key_stride, table.size(1) // 2)
    places = torch.tensor(numbers, dtype=torch.int32, device=table.device)

    def with_terms(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        offset, stride, farthest = places[0], places[1], places[2]
        distance = query + offset - stride * key
        return score + table[head, torch.minimum(torch.maximum(distance, -farthest), farthest) + farthest]

    return with_terms


def block_mask(pattern: Pattern) -> Any:
    """The blocks of pairs that FlexAttention visits, and of these the ones in which every query sees every key.

    They are found from the ends of the blocks, not from the pairs, of which a long sequence has too many. A dilated
    window has all blocks that the window without gaps has.
    """
    from torch.nn.attention.flex_attention import BlockMask

    device = pattern.band.device
    (first_query, last_query), (first_key, last_key) = (
        (first, (first + BLOCK - 1).clamp(max=length - 1))
        for length in (pattern.num_queries, pattern.num_keys)
        for first in [torch.arange(0, length, BLOCK, device=device)]
    )
    nearest = pattern.stride * first_key - last_query[:, None]
    farthest = pattern.stride * last_key - first_query[:, None]
    band = pattern.band if pattern.heads_differ else pattern.band[:, :1]
    lowest, highest, step, _ = (of_heads[:, None, None] for of_heads in band)
    whole = (last_key - first_key + 1 == BLOCK) & (last_query - first_query + 1 == BLOCK)[:, None]
    seen = ((farthest >= lowest) & (nearest <= highest))[None]
    full = ((nearest >= lowest) & (farthest <= highest) & (step == 1) & whole)[None]
    if pattern.global_keys is not None:
        of_keys, of_queries = (_blocks(x).any(2) for x in (pattern.global_keys, pattern.global_queries))
        seen = seen | of_keys[:, None, None] | of_queries[:, None, :, None]
    if pattern.padding is not None:
        real = _blocks(~pattern.padding)
        seen = seen & real.any(2)[:, None, None]
        full = full & real.all(2)[:, None, None]
    mask = BlockMask.from_kv_blocks(
        *_listed(seen & ~full),
        *_listed(full.expand_as(seen)),
        BLOCK_SIZE=BLOCK,
        mask_mod=mask_function(pattern),
        seq_lengths=(pattern.num_queries, pattern.num_keys),
    )
    for blocks in mask.as_tuple():
        if isinstance(blocks, Tensor):  # their number may stay when the length changes, and change when it does again
            torch._dynamo.maybe_mark_dynamic(blocks, tuple(range(2, blocks.dim())))
    return mask


def _blocks(x: Tensor) -> Tensor:
    """(B, L) bool as (B, blocks, BLOCK), with False behind the end."""
    return F.pad(x, (0, -x.size(1) % BLOCK)).unflatten(1, (-1, BLOCK))


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of keys each block of queries has, and which, the others behind them: of (B, H, I, J) bool."""
    order = blocks.byte().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32), order.to(torch.int32)
