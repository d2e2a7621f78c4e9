"""The chunks of a process's part of a document, one after the other, recomputed in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from fairseq_poolingformer.attention.sharding.exchange import narrowed


class Sliced(NamedTuple):
    """A tensor of which each chunk reads some rows; ``rows`` count from the tensor's first one."""

    x: Tensor
    dim: int
    rows: Sequence[range]


def in_chunks(
    function: Callable[..., Any], chunks: Sequence[range], sources: Sequence[Sliced], *shared: Tensor
) -> list[Any]:
    """``function(chunk, slices of the sources, shared)`` for each chunk.

    Where there are several, each is computed again in the backward pass, so that only the sources and the results stay
    in memory.

    Args:
        function: takes and returns tensors, besides the chunk.
        chunks: what it is told of each.
        sources: the tensors with a slice for each chunk.
        shared: tensors that every chunk reads.
    """
    if len(chunks) == 1:
        slices = [x if len(rows[0]) == x.size(dim) else narrowed(x, dim, rows[0]) for x, dim, rows in sources]
        return [function(chunks[0], *slices, *shared)]
    tensors, results = [source.x for source in sources], []
    for number, chunk in enumerate(chunks):
        cut = [_Slice.apply(x, s.dim, s.rows[number]) for x, s in zip(tensors, sources, strict=True)]
        slices, tensors = map(list, zip(*cut, strict=True))
        results.append(checkpoint(function, chunk, *slices, *shared, use_reentrant=False))
    return results


def joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """One tensor, without a copy where there is one part."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)


class _Slice(torch.autograd.Function):
    """Some rows, and the tensor for the next slice, whose gradient takes this slice's: one at a time is in memory."""

    @staticmethod
    def forward(ctx, x: Tensor, dim: int, rows: range):
        ctx.dim, ctx.rows, ctx.shape = dim, rows, x.shape
        ctx.set_materialize_grads(False)
        return narrowed(x, dim, rows), x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor | None, total: Tensor | None):
        if grad is not None:
            total = grad.new_zeros(ctx.shape) if total is None else total
            narrowed(total, ctx.dim, ctx.rows).add_(grad)
        return total, None, None
