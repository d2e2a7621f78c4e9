"""A call as the block and Triton backends read it: its residue classes, its masks, and its score terms' gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.call import Call, ScoreTerm, term_tensors
from fairseq_poolingformer.attention.dropout import KeepMask
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.masks import Masks
from fairseq_poolingformer.attention.patterns import Band, Pooling, Window, band_of
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens
from fairseq_poolingformer.choices import UNLIMITED

LOG2E = math.log2(math.e)  # exp2 is nearly three times as fast as exp on a CPU, and one instruction on a GPU


@dataclass(frozen=True, eq=False)  # slices have no hash
class ResidueClass:
    """The queries of some heads and the keys that they can see through the window, chosen so that the band has step 1.

    Without dilation and with pools on the grid, one class has all heads, queries and keys. A dilated window or
    query-aligned pools have one class for each residue of the step, inside which the window is a plain one.
    """

    heads: slice  # of the call's
    queries: slice
    keys: slice
    # its query u is at position u and its key j at position ``key_stride·j``; None when every query sees every key
    band: Band | None
    whole: bool = False  # it has all heads, queries and keys


def residue_classes(
    window: Window,
    pooling: Pooling | None,
    num_heads: int,
    query_offset: int,
    num_queries: int,
    always_band: bool = False,
) -> Iterator[ResidueClass]:
    """Split a call into classes: one where the band has step 1, else one for each residue and group of equal heads."""
    everything = window.left == window.right == UNLIMITED and not always_band
    if everything and band_of(window, pooling).step == 1 and window.dilation == 1:
        yield ResidueClass(slice(0, num_heads), slice(None), slice(None), None, whole=True)
        return
    first_head = 0
    for dilation, equal in groupby(window.head_dilations(num_heads)):
        heads = slice(first_head, first_head + len(list(equal)))
        first_head = heads.stop
        band = band_of(window, pooling, dilation)
        for residue in range(min(band.step, num_queries)):
            # A query at i sees a key at j when lowest <= j − i <= highest and j − i − lowest is a multiple of the step
            # s. The class's queries are at position + s·u, so their keys are at first_key + s·v, and v − u lies between
            # (lowest + position − first_key) / s, which is whole, and (highest + position − first_key) / s.
            position = query_offset + residue
            first_key = (position + band.lowest) % band.step
            lowest = position + band.lowest - first_key
            highest = position + band.highest - first_key
            yield ResidueClass(
                heads,
                slice(residue, None, band.step),
                slice(first_key, None, band.step),
                Band(lowest // band.step, highest // band.step, key_stride=band.key_stride),
                whole=band.step == 1 and heads == slice(0, num_heads),
            )


@lru_cache(maxsize=256)
def _classes(*geometry: Any) -> tuple[ResidueClass, ...]:
    """:func:`residue_classes`, computed once for each geometry."""
    return tuple(residue_classes(*geometry))


@dataclass(frozen=True)
class Plan:
    """Everything of a call except the tensors that may need gradients."""

    classes: tuple[ResidueClass, ...]  # the call's residue classes
    masks: Masks  # of the keys
    global_queries: GlobalTokens | None  # those among the queries; None without any
    terms: tuple[ScoreTerm, ...]  # the score terms, without that of the unseen tokens
    num_heads: int
    query_offset: int
    key_offset: int
    key_stride: int
    scale: float
    dropout: KeepMask
    # the term that counts the tokens of pools that level one does not show; None without one
    unseen: UnseenTokens | None = None
    return_lse: bool = False
    # of the pools beside the tokens in one softmax, which have neither masks nor other terms
    pool_plan: Plan | None = None

    @classmethod
    def of(cls, call: Call) -> Plan:
        _, heads, queries, _ = call.query.shape
        unseen = next((term for term in call.score_terms if isinstance(term, UnseenTokens)), None)
        geometry = call.window, call.pooling, heads, call.query_offset, queries
        return cls(
            classes=_classes(*geometry, unseen is not None),
            masks=call.masks,
            global_queries=call.global_queries(),
            terms=tuple(term for term in call.score_terms if term is not unseen),
            unseen=unseen,
            num_heads=heads,
            query_offset=call.query_offset,
            key_offset=call.key_offset,
            key_stride=call.key_stride,
            scale=call.scale,
            dropout=call.keep_mask(),
            return_lse=call.return_lse,
        )


def tensors_of(terms: tuple[ScoreTerm, ...]) -> list[Tensor]:
    """The tensors of all score terms, in order."""
    return [tensor for term in terms for tensor in term_tensors(term).values()]


class TermGradients:
    """The score terms over detached tensors, and the sums of these tensors' gradients, in 32 bits at least.

    ``tensors`` are those of :func:`tensors_of`; ``wanted`` says which of them need gradients.
    """

    def __init__(self, terms: tuple[ScoreTerm, ...], tensors: list[Tensor], wanted: tuple[bool, ...]) -> None:
        self.leaves = [t.detach().requires_grad_(want) for t, want in zip(tensors, wanted, strict=True)]
        self.sums = [
            torch.zeros_like(leaf, dtype=torch.promote_types(leaf.dtype, torch.float32)) if leaf.requires_grad else None
            for leaf in self.leaves
        ]
        self.terms: list[tuple[ScoreTerm, dict[str, int]]] = []  # each with the places in ``sums`` that it adds to
        first = 0
        for term in terms:
            names = list(term_tensors(term))
            numbers = range(first, first + len(names))
            leaves = {name: self.leaves[n] for name, n in zip(names, numbers, strict=True)}
            places = {name: n for name, n in zip(names, numbers, strict=True) if wanted[n]}
            self.terms.append((replace(term, **leaves), places))
            first = numbers.stop

    def results(self) -> list[Tensor | None]:
        """The gradients in their tensors' dtypes; None for tensors that need none."""
        pairs = zip(self.sums, self.leaves, strict=True)
        return [None if total is None else total.to(leaf.dtype) for total, leaf in pairs]


def dense(x: Tensor) -> Tensor:
    """The tensor (…, L, D), copied unless its vectors are neighbouring numbers, one vector behind the other."""
    # not contiguous(), which leaves the strides of dimensions of size 1 as they are
    is_dense = x.stride(-1) == 1 and x.stride(-2) >= x.size(-1)
    return x if is_dense else x.clone(memory_format=torch.contiguous_format)


def zero_padding(x: Tensor, padding: Tensor | None) -> Tensor:
    """Keys or values (B, H, S, D) with zeros at padding (B, S): weights are zero there, but 0·NaN is NaN."""
    # not masked_fill(), which gives up the layout
    return x if padding is None else x.clone().masked_fill_(padding[:, None, :, None], 0.0)


def empty_like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """(B, H, S, D) laid out as (S, B, H, D): heads merge to (S, B, C), fairseq's layout, without a copy."""
    batch, heads, _, head_dim = x.shape
    return x.new_empty_strided(x.shape, (*strides_of_empty(batch, heads, head_dim), 1), dtype=dtype)


def strides_of_empty(batch: int, heads: int, head_dim: int) -> tuple[int, int, int]:
    """The strides of :func:`empty_like`'s batch, heads and length."""
    return heads * head_dim, head_dim, batch * heads * head_dim


def zeros_like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Zeros laid out as :func:`empty_like` lays them out."""
    return empty_like(x, dtype).zero_()


def softmax_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32
