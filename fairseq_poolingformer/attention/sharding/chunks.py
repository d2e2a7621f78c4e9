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
    slices = [_Slices.apply(*source) for source in sources]
    return [
        checkpoint(function, chunk, *of_chunk, *shared, use_reentrant=False)
        for chunk, *of_chunk in zip(chunks, *slices, strict=True)
    ]


def joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """One tensor, without a copy where there is one part."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)


class _Slices(torch.autograd.Function):
    """Slices that may overlap; their gradients are added in one tensor, in the order of the slices."""

    @staticmethod
    def forward(ctx, x: Tensor, dim: int, rows: Sequence[range]):
        ctx.dim, ctx.rows, ctx.shape = dim, rows, x.shape
        return tuple(narrowed(x, dim, r) for r in rows)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor):
        total = grads[0].new_zeros(ctx.shape)
        for rows, grad in zip(ctx.rows, grads, strict=True):
            narrowed(total, ctx.dim, rows).add_(grad)
        return total, None, None
