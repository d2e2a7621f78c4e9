"""The chunks of a process's part of a document, one after the other, recomputed in the backward pass.

Arrays of all tokens are at a :class:`Place`, from where chunks take rows and where they put them. Each has one
gradient, of its dtype and at the same place, to which the chunks add theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.sharding.exchange import narrowed, shifted
from fairseq_poolingformer.attention.sharding.places import Place


class Source:
    """An array of neighbouring tokens, or pools, of a document, whose rows chunks take in any order, in several layers.

    Its gradient goes on when the backward passes of all that was taken have ended.

    Args:
        whole: the array.
        dim: the dimension of its rows.
        place: where its gradient is; None where no chunks take it, which is like any tensor then.
        start: the number of its first row in the document.

    Attributes:
        x: the array, without a gradient where there is a place.
    """

    def __init__(self, whole: Tensor, dim: int, place: Place | None = None, start: int = 0) -> None:
        self.whole, self.x, self.dim, self.start = whole, whole, dim, start
        self._device = whole.device if place is None or place.device is None else place.device
        self._gradient = self._anchor = None
        if place is not None:
            self.x = whole.detach()
            if torch.is_grad_enabled() and whole.requires_grad:
                self._gradient = _Gradient(place, whole)
                self._anchor = _Anchor.apply(whole, self._gradient)

    def rows(self, rows: range) -> Tensor:
        """The rows of some neighbouring tokens or pools."""
        if len(rows) == self.x.size(self.dim) and self._anchor is None:
            return self.x.to(self._device)
        rows = shifted(rows, self.start)
        return self.take(partial(narrowed, dim=self.dim, rows=rows), partial(_add_rows, self.dim, rows))

    def take(self, read: Callable[[Tensor], Tensor], add: Callable[[Tensor, Tensor], Any]) -> Tensor:
        """What ``read(array)`` returns; ``add(total, gradient)`` adds its gradient to the array's, in place."""
        if self._anchor is None:
            return read(self.x).to(self._device)
        return _Take.apply(self._anchor, self._gradient, partial(read, self.x), add, self._device)


Sliced = tuple[Source, Sequence[range]]  # an array, and which of its rows each chunk takes
Result = tuple[int, Sequence[range]]  # the dimension of an array's rows, and which of these each chunk gives


def in_chunks(
    function: Callable[..., tuple[Tensor, ...]],
    chunks: Sequence[Any],
    sources: Sequence[Sliced],
    *shared: Tensor,
    results: Sequence[Result] = (),
    into: Tensor | None = None,
    place: Place | None = None,
) -> tuple[list[Tensor], list[tuple[Tensor, ...]]]:
    """``function(chunk, rows of the sources, shared)`` for each chunk.

    With a place, each is computed again in the backward pass, so that only the sources and the results are kept.

    Args:
        function: returns tensors: of each of ``results`` the chunk's rows, then others.
        chunks: what it is told of each.
        sources: the arrays of which each chunk takes rows.
        shared: tensors that every chunk reads.
        results: the arrays to make, which begin with the first chunk's rows.
        into: is overwritten instead of making the first, where it has its dtype.
        place: where they are; None for one chunk, whose tensors they are.

    Returns:
        The results, and of each chunk the other tensors.
    """
    if place is None:
        (chunk,) = chunks
        found = function(chunk, *(source.rows(rows[0]) for source, rows in sources), *shared)
        return list(found[: len(results)]), [found[len(results) :]]
    wholes: list[Any] = [into, *(None for _ in results)]
    others: list[tuple[Tensor, ...]] = []
    for number, found in enumerate(computed(function, chunks, sources, *shared, place=place)):
        for which, ((dim, rows), piece) in enumerate(zip(results, found, strict=False)):
            whole = wholes[which]
            if number == 0 and (whole is None or whole.dtype != piece.dtype):
                shape = [*piece.shape[:dim], rows[-1].stop - rows[0].start, *piece.shape[dim + 1 :]]
                whole = place.zeros(shape, piece.dtype, piece.device)
            wholes[which] = _Put.apply(whole, piece, dim, shifted(rows[number], rows[0].start), place)
        others.append(found[len(results) :])
    return wholes[: len(results)], others


def computed(
    function: Callable[..., tuple[Tensor, ...]],
    chunks: Sequence[Any],
    sources: Sequence[Sliced],
    *shared: Tensor,
    place: Place,
) -> Iterator[tuple[Tensor, ...]]:
    """``function(chunk, rows of the sources, shared)`` of one chunk after the other; see :func:`in_chunks`."""
    for number, chunk in enumerate(chunks):
        slices = [source.rows(rows[number]) for source, rows in sources]
        if torch.is_grad_enabled():
            yield checkpoint(function, chunk, *slices, *shared, use_reentrant=False)
        else:
            yield function(chunk, *slices, *shared)
        place.trim()


def _add_rows(dim: int, rows: range, total: Tensor, grad: Tensor) -> None:
    narrowed(total, dim, rows).add_(grad)


class _Gradient:
    """The gradient of an array, which is made when something is added to it."""

    def __init__(self, place: Place, x: Tensor) -> None:
        self._place, self._form = place, (x.shape, x.dtype, x.device)
        self._total: Tensor | None = None

    def add(self, add: Callable[[Tensor, Tensor], Any], grad: Tensor) -> None:
        if self._total is None:
            self._total = self._place.zeros(*self._form)
        add(self._total, grad.to(self._total.device))
        self._place.trim()

    def taken(self) -> Tensor | None:
        """The sum, for an array's device; another backward pass begins with none."""
        total, self._total = self._total, None
        return None if total is None else total.to(self._form[2])


class _Anchor(torch.autograd.Function):
    """A number in the graph for an array, whose gradient passes when those that took rows of it have added theirs."""

    @staticmethod
    def forward(ctx, x: Tensor, gradient: _Gradient) -> Tensor:
        ctx.gradient = gradient
        return x.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx, _: Tensor):
        return ctx.gradient.taken(), None


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor: Tensor, gradient: _Gradient, read: Callable, add: Callable, device: torch.device):
        ctx.gradient, ctx.add = gradient, add
        ctx.anchor_form = {"dtype": anchor.dtype, "device": anchor.device}
        return read().to(device)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        ctx.gradient.add(ctx.add, grad)
        return torch.zeros((), **ctx.anchor_form), None, None, None, None


class _Put(torch.autograd.Function):
    """A chunk's rows of an array."""

    @staticmethod
    def forward(ctx, whole: Tensor, piece: Tensor, dim: int, rows: range, place: Place) -> Tensor:
        ctx.dim, ctx.rows, ctx.device, ctx.place = dim, rows, piece.device, place
        narrowed(whole, dim, rows).copy_(piece)
        ctx.mark_dirty(whole)
        return whole

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        ctx.place.trim()  # of what the chunk before has read
        return grad, narrowed(grad, ctx.dim, ctx.rows).to(ctx.device), None, None, None


def overwritten(x: Tensor, values: Tensor, tokens: GlobalTokens, split: Callable[[Tensor], Tensor]) -> Tensor:
    """An array with other values of global tokens, in place.

    Args:
        x: nothing else may use it, nor its gradient.
        values: (B, H, G, D).
        tokens: the global tokens, on the array's device.
        split: views the array as (B, H, T, D).
    """
    return _Overwrite.apply(x, values, tokens, split)


class _Overwrite(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, values: Tensor, tokens: GlobalTokens, split: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.tokens, ctx.split, ctx.form = tokens, split, (values.dtype, values.device)
        tokens.put(split(x), values.to(x.device))
        ctx.mark_dirty(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        values = ctx.tokens.gather(ctx.split(grad))
        ctx.tokens.put(ctx.split(grad), torch.zeros_like(values))
        dtype, device = ctx.form
        return grad, values.to(device, dtype), None, None
