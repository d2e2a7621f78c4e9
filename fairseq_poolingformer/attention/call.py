"""One checked call of the operator as the backends receive it, and the score terms that a call may have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.patterns import Pooling, Window


@dataclass(frozen=True)
class Pairs:
    """The (query, key) pairs of a call for which a backend asks a score term.

    Args:
        query_index: indices into the call's queries: a range of t, or a (t,) or (B, t) tensor.
        key_index: indices into the call's keys: a range of s, or a (s,) or (B, s) tensor.
        query_offset: token position of query 0.
        key_offset: token at which key 0 starts (0 unless the keys are pooled with query alignment).
        key_stride: tokens between neighbouring keys (1 unless the keys are pooled on a grid).
        query: (B, H, t, D) these queries; None where the term does not read them.
        key: (B, H, s, D) these keys; None likewise.
        scale: α, for terms that are scaled as the content product is.
        with_global: whether the query or the key is a global token: one answer for all pairs, or (B, t, s) bool.
    """

    query_index: range | Tensor
    key_index: range | Tensor
    query_offset: int = 0
    key_offset: int = 0
    key_stride: int = 1
    query: Tensor | None = None
    key: Tensor | None = None
    scale: float = 1.0
    with_global: bool | Tensor = False

    def distance(self, device: torch.device) -> Tensor:
        """Position of the query minus position of the key's first token: (t, s) or (B, t, s)."""
        position = _on(device, self.query_index) + self.query_offset
        start = self.key_stride * _on(device, self.key_index) + self.key_offset
        return position[..., :, None] - start[..., None, :]

    def by_diagonal(self) -> Pairs | None:
        """One pair for each diagonal of the (t, s) pairs, from the lower left to the upper right: t + s − 1 pairs.

        Where neighbouring queries are as far apart as neighbouring keys, all pairs of a diagonal have one distance;
        elsewhere the result is None.
        """
        queries, keys = self.query_index, self.key_index
        if not (isinstance(queries, range) and isinstance(keys, range)) or queries.step != self.key_stride * keys.step:
            return None
        places = range(keys.start, keys.start + (len(queries) + len(keys) - 1) * keys.step, keys.step)
        return replace(self, query_index=queries[-1:], key_index=places, query=None, key=None)


def _on(device: torch.device, index: range | Tensor) -> Tensor:
    if isinstance(index, range):
        return torch.arange(index.start, index.stop, index.step, device=device)
    return index.to(device)


class ScoreTerm(ABC):
    """A term that is added to the attention scores before the softmax, besides the content product.

    Implementations are frozen dataclasses. Their tensor fields, (H, …) or (1, …) for all heads alike, are
    differentiable inputs of the operator. ``scores`` computes the term for some pairs only, so that a backend never
    needs more of it than the query block at hand.
    """

    @abstractmethod
    def scores(self, pairs: Pairs) -> Tensor:
        """The term for some pairs, broadcastable to (B, H, t, s); -inf hides a pair."""

    def why_not(self, call: Call) -> str | None:
        """The reason why the term has no meaning in a call, and what to do; None where it has a meaning."""
        return None


def term_tensors(term: ScoreTerm) -> dict[str, Tensor]:
    """The tensor fields of a score term by name."""
    values = ((item.name, getattr(term, item.name)) for item in fields(term))
    return {name: value for name, value in values if isinstance(value, Tensor)}


def with_tensors(term: ScoreTerm, tensors: dict[str, Tensor]) -> ScoreTerm:
    """The same term with other tensors."""
    return replace(term, **tensors)


def of_heads(x: Tensor, heads: slice, num_heads: int) -> Tensor:
    """The rows of some of the call's heads in a score term's tensor (H, …); all of a tensor that is (1, …)."""
    return x[heads] if x.size(0) == num_heads else x


@dataclass(frozen=True)
class Call:
    """Arguments of :func:`~fairseq_poolingformer.attention.band_attention`, checked and with defaults filled in."""

    query: Tensor
    key: Tensor
    value: Tensor
    window: Window
    pooling: Pooling | None
    global_tokens: GlobalTokens | None
    key_padding_mask: Tensor | None
    score_terms: tuple[ScoreTerm, ...]
    query_offset: int
    dropout_p: float
    scale: float

    @property
    def key_offset(self) -> int:
        """The token at which key 0 starts."""
        return 0 if self.pooling is None else self.pooling.first_start

    @property
    def key_stride(self) -> int:
        """Tokens between the starts of neighbouring keys."""
        return 1 if self.pooling is None else self.pooling.key_stride

    @property
    def global_mask(self) -> Tensor | None:
        """(B, S) bool, True at global tokens."""
        return None if self.global_tokens is None else self.global_tokens.mask

    def global_keys(self) -> GlobalTokens | None:
        """The global tokens among the keys, padding or not; None without any."""
        tokens = self.global_tokens
        return tokens if tokens is not None and tokens.num_slots else None

    def global_queries(self) -> GlobalTokens | None:
        """The global tokens among the queries, as indices into the queries; None without any."""
        num_queries, num_keys = self.query.size(2), self.key.size(2)
        start = self.query_offset
        if self.global_tokens is None or (start == 0 and num_queries == num_keys):
            return self.global_keys()
        mask = self.global_mask.new_zeros(self.query.size(0), num_queries)
        first, last = max(0, start), min(num_keys, start + num_queries)
        if first < last:
            mask[:, first - start : last - start] = self.global_mask[:, first:last]
        tokens = GlobalTokens(mask)
        return tokens if tokens.num_slots else None
