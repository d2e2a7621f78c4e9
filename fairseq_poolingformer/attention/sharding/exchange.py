"""Rows of tensors go to other ranks, and their gradients come back to their owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_poolingformer.attention.sharding.ranks import Ranks, telling


@dataclass(frozen=True)
class Route:
    """Which rows of a tensor go where."""

    dim: int  # the dimension of the rows
    sent: tuple[range, ...]  # for each rank the rows that it gets; this rank's own stay here
    received: tuple[int, ...]  # for each rank how many rows come from it

    @classmethod
    def between(cls, dim: int, rank: int, owned: Sequence[range], wanted: Sequence[range]) -> Route:
        """The route of rows that the ranks own, one range after the other, to ranges that they want."""
        own = owned[rank]
        sent = [overlap(own, other) for other in wanted]
        received = tuple(len(overlap(other, wanted[rank])) for other in owned)
        return cls(dim, tuple(shifted(rows, own.start) for rows in sent), received)

    def taken(self, x: Tensor, rank: int) -> Tensor:
        """The rows that a rank gets."""
        return narrowed(x, self.dim, self.sent[rank])


def overlap(one: range, other: range) -> range:
    """The numbers of both ranges; where there are none, an empty range inside the first one."""
    start = min(max(one.start, other.start), one.stop)
    return range(start, max(start, min(one.stop, other.stop)))


def shifted(numbers: range, start: int) -> range:
    """A range as it is counted from ``start``."""
    return range(numbers.start - start, numbers.stop - start)


def narrowed(x: Tensor, dim: int, rows: range) -> Tensor:
    """Some neighbouring rows of a dimension, a view."""
    return x.narrow(dim, rows.start, len(rows))


class Rows(NamedTuple):
    """Rows of neighbouring tokens, or pools, of a document."""

    x: Tensor  # the tensor
    dim: int  # the dimension of its rows
    start: int  # the number of its first row in the document

    def of(self, numbers: range) -> Tensor:
        """The rows of some neighbouring tokens or pools, a view."""
        return narrowed(self.x, self.dim, shifted(numbers, self.start))


def exchange(ranks: Ranks, through: Tensor, *fields: tuple[Tensor, Route]) -> list[Tensor]:
    """Send rows of tensors to other ranks, and get theirs.

    A backward pass runs these exchanges in the reverse order only if each depends on the one before. So ``through``
    passes unchanged: give the tensor that the ranks' losses all depend on, and go on with the result.

    All ranks call this with the same number of fields: tensors of the same dtypes whose shapes differ between ranks in
    the route's dimension alone. Behind ``through`` the result has each field's rows from the ranks, in their order.
    """
    tensors, routes = zip(*fields, strict=True)
    with telling(ranks):
        return list(_Exchange.apply(ranks, routes, through, *tensors))


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, ranks: Ranks, routes: tuple[Route, ...], through: Tensor, *tensors: Tensor):
        ctx.ranks, ctx.routes = ranks, routes
        ctx.set_materialize_grads(False)
        sent = [[route.taken(x, rank) for x, route in zip(tensors, routes, strict=True)] for rank in range(ranks.size)]
        shapes = [
            [_with_rows(x.shape, route.dim, route.received[rank]) for x, route in zip(tensors, routes, strict=True)]
            for rank in range(ranks.size)
        ]
        received = zip(*_swapped(ranks, sent, shapes), strict=True)
        fetched = [torch.cat(pieces, route.dim) for pieces, route in zip(received, routes, strict=True)]
        ctx.forms = [(x.shape, y.shape, y.dtype, y.device) for x, y in zip(tensors, fetched, strict=True)]
        return through.view_as(through), *fetched  # a new tensor, which depends on this exchange

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_through: Tensor | None, *given: Tensor | None):
        with telling(ctx.ranks):
            return None, None, grad_through, *_returned(ctx, given)


def _returned(ctx, given: Sequence[Tensor | None]) -> list[Tensor]:
    """The gradients of what :func:`exchange` sent, from those of what it fetched."""
    ranks, routes = ctx.ranks, ctx.routes
    # zeros where nothing used what came: the other ranks wait for this one's message
    grads = [
        torch.zeros(shape, dtype=dtype, device=device) if grad is None else grad
        for grad, (_, shape, dtype, device) in zip(given, ctx.forms, strict=True)
    ]
    pieces = [grad.split(route.received, route.dim) for grad, route in zip(grads, routes, strict=True)]
    sent = [list(x) for x in zip(*pieces, strict=True)]
    shapes = [
        [_with_rows(shape, r.dim, len(r.sent[rank])) for (shape, *_), r in zip(ctx.forms, routes, strict=True)]
        for rank in range(ranks.size)
    ]
    received = _swapped(ranks, sent, shapes)
    totals = [grad.new_zeros(shape) for grad, (shape, *_) in zip(grads, ctx.forms, strict=True)]
    for rank, gradients in enumerate(received):  # in the order of the ranks, so that runs repeat
        for total, route, grad in zip(totals, routes, gradients, strict=True):
            route.taken(total, rank).add_(grad)
    return totals


def _with_rows(shape: Sequence[int], dim: int, rows: int) -> list[int]:
    return [*shape[:dim], rows, *shape[dim + 1 :]]


def _swapped(ranks: Ranks, sent: list[list[Tensor]], shapes: list[list[list[int]]]) -> list[list[Tensor]]:
    """Tensors of these shapes from each rank, for those sent to each; this rank's own stay here."""
    dtypes, own = [x.dtype for x in sent[ranks.rank]], ranks.rank
    none = torch.empty(0, dtype=torch.uint8, device=sent[own][0].device)
    # one message to each rank for all fields, as bytes, since their dtypes differ
    packed = [none if rank == own else torch.cat([_bytes(x) for x in pieces]) for rank, pieces in enumerate(sent)]
    sizes = [[dtype.itemsize * prod(shape) for dtype, shape in zip(dtypes, of_rank, strict=True)] for of_rank in shapes]
    arrived = ranks.swap(packed, [0 if rank == own else sum(of_rank) for rank, of_rank in enumerate(sizes)])
    return [
        sent[own]
        if rank == own
        else [
            piece.clone().view(dtype).view(shape)  # its own memory, because numbers must be aligned
            for piece, dtype, shape in zip(arrived[rank].split(sizes[rank]), dtypes, shapes[rank], strict=True)
        ]
        for rank in range(ranks.size)
    ]


def _bytes(x: Tensor) -> Tensor:
    return x.contiguous().flatten().view(torch.uint8)


def gather(ranks: Ranks, x: Tensor, counts: Sequence[int], dim: int = 0) -> Tensor:
    """The rows of all ranks, of which rank r has ``counts[r]``, one after the other."""
    everything = tuple(range(x.size(dim)) for _ in range(ranks.size))
    return exchange(ranks, x, (x, Route(dim, everything, tuple(counts))))[1]


def stacked(ranks: Ranks, *tensors: Tensor) -> list[Tensor]:
    """Of each tensor those of all ranks, which have equal shapes: (ranks, …)."""
    route = Route(0, (range(1),) * ranks.size, (1,) * ranks.size)
    return exchange(ranks, tensors[0], *((x.unsqueeze(0), route) for x in tensors))[1:]


def merged_over_ranks(ranks: Ranks, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """One softmax over the keys of all ranks, the same on each: ``out = Σ_r exp(lse_r − lse)·out_r``.

    Each rank sends its output and logarithm to every other, whatever the number of its keys; the backward pass sends
    their gradients back. So each rank may count a part of the loss.

    Args:
        ranks: all of them call this, with the same queries.
        out: (…, D) the queries' output over this rank's keys.
        lse: (…) the natural logarithm of its softmax's denominator; -inf where a query sees none of these keys.

    Returns:
        The output (…, D) and the logarithm (…), in the dtype of ``lse``; zeros and -inf where a query sees nothing.
    """
    return merge_softmax(list(zip(*stacked(ranks, out, lse), strict=True)))


def merge_softmax(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """One softmax over the keys of all parts: ``lse = log Σ exp(lse_p)``, ``out = Σ exp(lse_p − lse)·out_p``.

    Of each part its output (…, D) and logarithm (…), -inf where a query sees none of its keys. The results are float32,
    or float64 where a part is; zeros and -inf where a query sees nothing.
    """
    dtype = torch.promote_types(parts[0][0].dtype, torch.float32)
    logs = torch.stack([lse.to(dtype) for _, lse in parts])
    blind = (logs == -torch.inf).all(0)
    lse = logs.masked_fill(blind, 0.0).logsumexp(0)  # finite, for the gradients of -inf are NaN
    weights = (logs - lse).exp().unsqueeze(-1)
    outs = [out.to(dtype).masked_fill(weight == 0.0, 0.0) for (out, _), weight in zip(parts, weights, strict=True)]
    merged = torch.stack([weight * out for out, weight in zip(outs, weights, strict=True)]).sum(0)
    return merged, lse.masked_fill(blind, -torch.inf)
