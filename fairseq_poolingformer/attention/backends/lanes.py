"""How a call is cut up: streams of queries, the sources of keys each attends to, and their blocks.

A *stream* is a run of queries that share the same sources. A *source* is a run of keys with a band (the sliding window)
or without (every query sees every key). Dilated windows and query-aligned pooling become one stream for each residue
class, inside which the window is a plain one. Global tokens become one more source of every stream and one more stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention.patterns import UNLIMITED, Band, Pooling, Window, band_of

SCORES_PER_BLOCK = 2**16  # of one head
WASTE = 0.25  # keys beyond its own that a query of a block may be multiplied with, as a share of those
MIN_BLOCK, MAX_BLOCK = 64, 512  # queries
CHUNK = 512  # keys multiplied at a time
MIN_ROWS = 8  # a multiplication rounds differently with fewer; results must not depend on how the last block falls


@dataclass(frozen=True)
class Lane:
    """Some heads' queries and keys of one residue class, between which the band has step 1.

    Args:
        heads, queries, keys: slices of the call's dimensions.
        band: with query u of the lane at position u and key j of the lane at position ``key_stride·j``; None when
            every query sees every key.
    """

    heads: slice
    queries: slice
    keys: slice
    band: Band | None


def lanes(
    window: Window,
    pooling: Pooling | None,
    num_heads: int,
    query_offset: int,
    num_queries: int,
) -> Iterator[Lane]:
    """Cut a call into lanes: one where the band has step 1, else one for each residue class and run of equal heads."""
    if window.left == window.right == UNLIMITED and band_of(window, pooling).step == 1 and window.dilation == 1:
        yield Lane(slice(0, num_heads), slice(None), slice(None), None)
        return
    first_head = 0
    for dilation, run in groupby(window.head_dilations(num_heads)):
        heads = slice(first_head, first_head + len(list(run)))
        first_head = heads.stop
        band = band_of(window, pooling, dilation)
        for residue in range(min(band.step, num_queries)):
            position = query_offset + residue
            first_key = (position + band.lowest) % band.step
            lowest = position + band.lowest - first_key
            highest = position + band.highest - first_key
            yield Lane(
                heads,
                slice(residue, None, band.step),
                slice(first_key, None, band.step),
                Band(lowest // band.step, highest // band.step, key_stride=band.key_stride),
            )


@dataclass(frozen=True)
class Chunk:
    """A run of neighbouring keys that one block of queries is multiplied with.

    Args:
        start, stop: the keys; ``stop`` may lie beyond the last key, zeros then make up the width.
        size: how many of them exist.
    """

    start: int
    stop: int
    size: int

    @property
    def keys(self) -> slice:
        """The keys that exist."""
        return slice(self.start, self.start + self.size)

    def take(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """The chunk of keys or values ``x`` (B, H, S, D): (B·H, s, D), zeros beyond the last."""
        return take(x, self.start, self.size, self.stop - self.start, dtype)

    def add(self, x: Tensor, a: Tensor, b: Tensor, scale: float = 1.0) -> None:
        """Add ``scale·(a @ b)``, a (B·H, s, t), b (B·H, t, D), to the chunk of the gradients ``x`` (B, H, S, D)."""
        target, a = x[:, :, self.keys], a[:, : self.size]
        batch, heads = target.shape[:2]
        if batch == 1 or target.stride(0) == heads * target.stride(1):
            add_bmm(target.flatten(0, 1), a, b, scale)
        else:
            target.add_(torch.bmm(a, b).view(target.shape).to(target.dtype), alpha=scale)


@dataclass
class Source:
    """Keys and values that a stream attends to.

    Args:
        key, value: (B, H, S, D).
        index: a range of S or (B, S), each key's index in the call.
        hidden: (B, S) bool, True at keys that no query sees here; None without any.
        band: what each query sees; None for everything.
        with_global: whether every pair of a query and a key has a global token, or none has.
        chunk_width: keys multiplied at a time, at most.
        grad_key, grad_value: (B, H, S, D) accumulators, in the backward pass.
    """

    key: Tensor
    value: Tensor
    index: range | Tensor
    hidden: Tensor | None = None
    band: Band | None = None
    with_global: bool = False
    chunk_width: int = CHUNK
    grad_key: Tensor | None = None
    grad_value: Tensor | None = None
    _masks: dict[tuple[int, int, int], Tensor] = field(default_factory=dict, repr=False)

    @cached_property
    def _any_hidden(self) -> Tensor:
        """(S,) bool, True at keys that are hidden in some row; on the CPU, where it is looked at block by block."""
        return self.hidden.any(0).cpu()

    def width(self, block: int) -> int:
        """Keys that ``block`` neighbouring queries can see, were the sequence endless; one chunk's without a band."""
        if self.band is None:
            return self.chunk_width
        return max(0, self.band.highest - self.band.lowest + block - 1) // self.band.key_stride + 1

    def block_size(self) -> int:
        """Queries multiplied with it at a time: the most that the limits on waste and size allow."""
        size = MAX_BLOCK
        while size > MIN_BLOCK and (
            self.width(size) > (1 + WASTE) * self.width(1) or size * min(CHUNK, self.width(size)) > SCORES_PER_BLOCK
        ):
            size -= MIN_BLOCK
        return size

    def chunks(self, start: int, block: int) -> Iterator[Chunk]:
        """The keys that the queries ``start`` … ``start + block − 1`` can see, cut to equal widths.

        Widths and starts do not depend on the number of keys S: rounding, and so the result to the last bit, is the
        same however much padding follows a sequence.
        """
        num_keys = self.key.size(2)
        if self.band is None:
            first, stop, width = 0, num_keys, self.chunk_width
        else:
            first, stop = self.band.key_range(start, start + block - 1)
            whole = self.width(block)
            width = -(-whole // -(-whole // self.chunk_width))
        for begin in range(first, min(stop, num_keys), width):
            end = begin + width if self.band is None else min(begin + width, stop)
            yield Chunk(begin, end, min(end, num_keys) - begin)

    def mask(self, start: int, block: int, chunk: Chunk, dtype: torch.dtype) -> Tensor | None:
        """Additive (block, chunk) mask of the band, 0 or -inf; None where everything is seen."""
        if self.band is None or self.band.covers(range(start, start + block), range(chunk.start, chunk.stop)):
            return None
        # blocks away from the edges share their masks
        shape = (self.band.key_stride * chunk.start - start, block, chunk.stop - chunk.start)
        if shape not in self._masks:
            if len(self._masks) >= 16:
                self._masks.clear()
            device = self.key.device
            queries = torch.arange(start, start + block, device=device)
            seen = self.band.visible(queries, torch.arange(chunk.start, chunk.stop, device=device))
            self._masks[shape] = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf)
        return self._masks[shape]

    def hidden_in(self, keys: slice) -> Tensor | None:
        """The (B, s) hidden keys of a range; None without any."""
        if self.hidden is None or not self._any_hidden[keys].any():
            return None
        return self.hidden[:, keys]


@dataclass
class Stream:
    """Queries that share their sources.

    Args:
        number: its place in the call.
        query: (B, H, U, D).
        index: a range of U or (B, U), each query's index in the call.
        sources: what they attend to, together in one softmax.
        heads: which of the call's heads these are.
        out: (B, H, U, D), written by the forward pass, read by the backward pass.
        lse: (B, H, U) logarithm of the softmax's denominator to a base of the kernels' choice, the same; +inf where a
            query sees nothing.
        grad_out, grad_query: (B, H, U, D), in the backward pass.
    """

    number: int
    query: Tensor
    index: range | Tensor
    sources: list[Source]
    heads: slice
    out: Tensor
    lse: Tensor
    grad_out: Tensor | None = None
    grad_query: Tensor | None = None


def take(x: Tensor, start: int, count: int, width: int, dtype: torch.dtype, fill: float = 0.0) -> Tensor:
    """``x[:, :, start:start + count]`` of (B, H, S, D) as (B·H, width, D), ``fill`` after the first ``count``.

    A view where nothing is made up and batch and heads merge, as in fairseq's (T, B, C) layout; a copy in bfloat16
    on a CPU.
    """
    taken = x[:, :, start : start + count].flatten(0, 1).to(dtype)
    if dtype == torch.bfloat16 and x.device.type == "cpu":
        taken = taken.contiguous()  # else oneDNN makes a copy itself, of the transposed matrix, which takes longer
    return F.pad(taken, (0, 0, 0, width - count), value=fill) if width > count else taken


def take_index(index: range | Tensor, start: int, width: int) -> range | Tensor:
    """The indices ``start`` … ``start + width − 1``: a range goes on beyond its end, a tensor (B, S) with zeros."""
    if isinstance(index, range):
        first = index.start + start * index.step
        return range(first, first + width * index.step, index.step)
    taken = index[:, start : start + width]
    return F.pad(taken, (0, width - taken.size(1)))


def add_bmm(target: Tensor, a: Tensor, b: Tensor, scale: float) -> None:
    """``target += scale·(a @ b)`` in place, whatever the dtype of ``target``."""
    if target.dtype == a.dtype:
        target.baddbmm_(a, b, alpha=scale)
    else:
        target.add_(torch.bmm(a, b).to(target.dtype), alpha=scale)  # adding another dtype is slow on a CPU
