"""PyTorch's FlashAttention (``torch.nn.attention.varlen``): windows, with global tokens and pools as further calls.

The kernel knows a window and nothing else: query u sees key j when ``-left <= j − u − (keys − queries) <= right``. So

- every residue of a dilated window, and of the tokens between pools, is a call of its own, with such a window;
- keys that are hidden (padding; global tokens, which have their own call) get a score of -2¹⁵ from one more dimension;
- global keys are a call for all queries, merged by the logarithms of the denominators, and global queries a last one.

The logarithms have no gradient, and need none: each call's backward pass takes the merged output and logarithm, with
which its probabilities are those of the one softmax over everything (Dao et al. 2022, FlashAttention, alg. 4).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_poolingformer.attention.backends.plan import Plan, softmax_dtype, zeros_like
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.merging import merge_softmax
from fairseq_poolingformer.attention.patterns import UNLIMITED

MULTIPLE, MAX_HEAD_DIM = 8, 256  # of the kernel's head dimensions
HIDDEN = 2.0**15  # what hiding a key takes from its scores; e to the power of less than half of it is 0
LEAST_SCALE = 1e-5  # below, the factors of HIDDEN would not fit float16
NO_WEIGHT = 1e30  # a logarithm of a denominator beside which every probability is 0


def why_not(call: Call) -> str | None:
    """It runs in 16 bits on NVIDIA GPUs, without dropout and score terms."""
    device, head_dim = call.query.device, call.query.size(-1)
    if device.type != "cuda":
        return f"it needs an NVIDIA GPU, query is on {device}"
    if torch.version.hip or torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs an NVIDIA GPU of compute capability 8.0 or later"
    if call.query.dtype not in (torch.float16, torch.bfloat16):
        return f"it computes in 16 bits, query is {call.query.dtype}"
    if not call.query.size(0):
        return "it takes no empty batch"
    if call.dropout_p:
        return "it has no dropout"
    if call.return_lse:
        return "its logarithms have no gradient"
    if call.score_terms:
        return "it takes no score terms"
    if call.scale < LEAST_SCALE:
        return f"it takes scales from {LEAST_SCALE}, got {call.scale}"
    if head_dim >= MAX_HEAD_DIM:
        return f"it takes head dimensions below {MAX_HEAD_DIM}, query has {head_dim}"
    return _why_not_this_pytorch()


@cache
def _why_not_this_pytorch() -> str | None:
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return f"PyTorch {torch.__version__} does not have torch.nn.attention.varlen"
    if not {"window_size", "scale"} <= set(inspect.signature(varlen_attn).parameters):
        return f"varlen_attn of PyTorch {torch.__version__} takes no window"
    return None if torch.backends.cuda.is_flash_attention_available() else "PyTorch was built without FlashAttention"


def run(call: Call) -> Tensor:
    """See :func:`fairseq_poolingformer.attention.band_attention`."""
    with torch.cuda.device_of(call.query):
        return _VarlenAttention.apply(Plan.of(call), call.query, call.key, call.value)


class Part(NamedTuple):
    """Queries and keys of one call of the kernel.

    Args:
        heads, queries, keys: slices of the call's dimensions.
        lowest, highest: query u of these sees key j of these when ``lowest <= j − u <= highest``.
    """

    heads: slice = slice(None)
    queries: slice = slice(None)
    keys: slice = slice(None)
    lowest: int = -UNLIMITED
    highest: int = UNLIMITED


def windows(plan: Plan) -> Iterator[Part]:
    """The call's windows: one for each residue class, and with pools on a grid one for each token of the stride."""
    for residues in plan.classes:
        band, queries = residues.band, residues.queries
        if band is None:
            yield Part(residues.heads)
            continue
        start, step, stride = queries.start or 0, queries.step or 1, band.key_stride
        for token in range(stride):
            of_token = slice(start + token * step, None, stride * step)
            lowest, highest = -(-(band.lowest + token) // stride), (band.highest + token) // stride
            yield Part(residues.heads, of_token, residues.keys, lowest, highest)


class _VarlenAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan: Plan, query: Tensor, key: Tensor, value: Tensor):
        out = zeros_like(query)
        lse = query.new_full(query.shape[:3], -torch.inf, dtype=softmax_dtype(query))
        for part in windows(plan):
            if (kernel := _Kernel.of(part, plan.scale, query, key, value, plan.hidden)) is not None:
                rows = (slice(None), part.heads, part.queries)
                out[rows], lse[rows] = kernel.forward()
        if plan.global_keys:
            to_globals = _to_globals(plan, query, key, value).forward()
            merged, lse = merge_softmax([(out, lse), to_globals])
            out.copy_(merged)
        global_lse = None
        lse.masked_fill_(lse == -torch.inf, NO_WEIGHT)
        if tokens := plan.global_queries:
            of_globals, global_lse = _from_globals(plan, query, key, value).forward()
            global_lse = global_lse.masked_fill(global_lse == -torch.inf, NO_WEIGHT)
            tokens.put(out, of_globals)
            lse[tokens.row, :, tokens.token] = NO_WEIGHT  # their weights are those of their own call
        ctx.plan = plan
        ctx.save_for_backward(query, key, value, out, lse, global_lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out: Tensor):
        plan = ctx.plan
        query, key, value, out, lse, global_lse = ctx.saved_tensors
        wide = softmax_dtype(query)
        grad_query, grad_key, grad_value = (zeros_like(x, wide) for x in (query, key, value))
        for part in windows(plan):
            if (kernel := _Kernel.of(part, plan.scale, query, key, value, plan.hidden)) is not None:
                rows = (slice(None), part.heads, part.queries)
                grads = kernel.backward(grad_out[rows], out[rows], lse[rows])
                columns = (slice(None), part.heads, part.keys)
                for target, grad in zip((grad_query[rows], grad_key[columns], grad_value[columns]), grads, strict=True):
                    target[:, :, : grad.size(2)] += grad
        if plan.global_keys:
            grads = _to_globals(plan, query, key, value).backward(grad_out, out, lse)
            grad_query += grads[0]
            plan.global_keys.add(grad_key, grads[1])
            plan.global_keys.add(grad_value, grads[2])
        if tokens := plan.global_queries:
            kernel = _from_globals(plan, query, key, value)
            grads = kernel.backward(tokens.gather(grad_out), tokens.gather(out), global_lse)
            tokens.put(grad_query, grads[0])
            grad_key += grads[1]
            grad_value += grads[2]
        return None, grad_query.to(query.dtype), grad_key.to(key.dtype), grad_value.to(value.dtype)


def _to_globals(plan: Plan, query: Tensor, key: Tensor, value: Tensor) -> _Kernel:
    """All queries with the global keys."""
    keys, values = plan.global_keys.gather(key), plan.global_keys.gather(value)
    return _Kernel.of(Part(), plan.scale, query, keys, values, plan.hidden_globals)


def _from_globals(plan: Plan, query: Tensor, key: Tensor, value: Tensor) -> _Kernel:
    """The global queries with all keys."""
    return _Kernel.of(Part(), plan.scale, plan.global_queries.gather(query), key, value, plan.padding)


@dataclass(frozen=True)
class _Kernel:
    """One call of the kernel, forward or backward.

    Args:
        query: (B, H, U, D).
        key, value: (B, H, S, D).
        num_keys: how many of these keys are the part's, from its first one on; none of those behind them is seen.
        hidden: (B, S) bool, True at keys that no query sees; None without any.
        blind: (B or 1, U) bool, True at queries that see no key.
        window: (left, right) in the kernel's own terms.
        scale: α.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    num_keys: int
    hidden: Tensor | None
    blind: Tensor
    window: tuple[int, int]
    scale: float

    @classmethod
    def of(
        cls, part: Part, scale: float, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None
    ) -> _Kernel | None:
        """The kernel's call for a part of (B, H, T, D) queries and (B, H, S, D) keys; None where no query sees a key.

        The kernel aligns the last query with the last key. Keys behind the sight of the last query are left out, and
        hidden ones are added where the queries would otherwise stand too far back.
        """
        query = query[:, part.heads, part.queries]
        key, value = (x[:, part.heads, part.keys] for x in (key, value))
        hidden = None if hidden is None else hidden[:, part.keys]
        num_queries, num_keys, lowest, highest = query.size(2), key.size(2), part.lowest, part.highest
        if not num_queries or lowest > highest or lowest >= num_keys or highest + num_queries <= 0:
            return None
        stop = min(num_keys, num_queries + highest)
        shift = max(stop - num_queries, lowest, min(highest, 0))
        key, value, hidden = key[:, :, :stop], value[:, :, :stop], None if hidden is None else hidden[:, :stop]
        blind = _blind(hidden, lowest, highest, num_queries, stop, query.device)
        if added := num_queries + shift - stop:
            hidden = hidden if hidden is not None else torch.zeros_like(key[:, 0, :, 0], dtype=torch.bool)
            key, value = (F.pad(x, (0, 0, 0, added)) for x in (key, value))
            hidden = F.pad(hidden, (0, added), value=True)
        window = (min(shift - lowest, key.size(2)), min(highest - shift, key.size(2)))
        return cls(query, key, value, stop, hidden, blind, window, scale)

    def forward(self) -> tuple[Tensor, Tensor]:
        """The output (B, H, U, D), and the logarithms (B, H, U) of the denominators, -inf at blind queries."""
        from torch.nn.attention.varlen import AuxRequest, varlen_attn

        tensors, lengths = self._packed()
        arguments: dict[str, Any] = {
            "return_aux": AuxRequest(lse=True),
            "window_size": self.window,
            "scale": self.scale,
        }
        out, lse = varlen_attn(*(*tensors, *lengths), **arguments)
        blind = self.blind[:, None]
        lse = lse.unflatten(1, (self.query.size(0), -1)).transpose(0, 1).masked_fill(blind, -torch.inf)
        return self._unpacked(out).masked_fill(blind[..., None], 0.0), lse

    def backward(self, grad_out: Tensor, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of the queries and of the part's first keys and values, from merged outputs and logarithms."""
        (query, key, value), lengths = self._packed()
        grad_out, out = (_pack(x, query.size(2)) for x in (grad_out, out))
        lse = lse.transpose(0, 1).flatten(1).contiguous()
        state = torch.zeros(2, dtype=torch.uint64, device=query.device)  # of dropout, which there is none of
        grads = torch.ops.torch_attn._varlen_attn_backward(
            *(grad_out, query, key, value, out, lse, *lengths, False, state, self.scale, list(self.window))
        )
        grad_query, grad_key, grad_value = map(self._unpacked, grads)
        return grad_query, grad_key[:, :, : self.num_keys], grad_value[:, :, : self.num_keys]

    def _packed(self) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, int, int]]:
        """Query, key and value as the kernel takes them, and where the rows of the batch begin, and their lengths."""
        batch, _, num_queries, head_dim = self.query.shape
        num_keys, device = self.key.size(2), self.query.device
        width = -(-(head_dim + (self.hidden is not None)) // MULTIPLE) * MULTIPLE
        query, key, value = (_pack(x, width) for x in (self.query, self.key, self.value))
        if self.hidden is not None:
            root = sqrt(HIDDEN / self.scale)
            query[..., head_dim] = root
            key[..., head_dim] = torch.where(self.hidden, -root, 0.0).flatten()[:, None]
        rows = torch.arange(batch + 1, dtype=torch.int32, device=device)
        return (query, key, value), (rows * num_queries, rows * num_keys, num_queries, num_keys)

    def _unpacked(self, x: Tensor) -> Tensor:
        """(B, H, L, D) from the kernel's (B·L, H, D) with its further dimensions."""
        return x.unflatten(0, (self.query.size(0), -1)).transpose(1, 2)[..., : self.query.size(3)]


def _blind(
    hidden: Tensor | None, lowest: int, highest: int, num_queries: int, num_keys: int, device: torch.device
) -> Tensor:
    """(B or 1, U) bool, True at queries that see no key."""
    query = torch.arange(num_queries, device=device)
    first, stop = (query + lowest).clamp(0, num_keys), (query + highest + 1).clamp(0, num_keys)
    if hidden is None:
        return (stop <= first)[None]
    seen = F.pad((~hidden).cumsum(1), (1, 0))  # keys before each place that are not hidden
    return seen[:, stop] <= seen[:, first]


def _pack(x: Tensor, width: int) -> Tensor:
    """(B, H, L, D) as (B·L, H, width), with zeros behind the D numbers of a vector; a view where it can be one."""
    x = F.pad(x, (0, width - x.size(3))) if width > x.size(3) else x
    x = x.transpose(1, 2).flatten(0, 1)
    return x if x.stride(2) == 1 else x.contiguous()
