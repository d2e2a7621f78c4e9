"""One checked call of the operator as the backends receive it, and the score terms that a call may have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.dropout import KeepMask
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.masks import Masks
from fairseq_poolingformer.attention.patterns import Pooling, Window, require_kind

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


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

    @classmethod
    def of(
        cls,
        call: Any,
        queries: range | Tensor,
        keys: range | Tensor,
        query: Tensor,
        key: Tensor,
        with_global: bool | Tensor = False,
    ) -> Pairs:
        """Pairs of a :class:`Call`, or of what a backend makes of it; the other arguments are the class's."""
        places = call.query_offset, call.key_offset, call.key_stride
        return cls(queries, keys, *places, query, key, call.scale, with_global)

    def places(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The position of each query, (t, 1) or (B, t, 1), and of each key's first token, (1, s) or (B, 1, s)."""
        position = _on(device, self.query_index) + self.query_offset
        start = self.key_stride * _on(device, self.key_index) + self.key_offset
        return position[..., :, None], start[..., None, :]

    def distance(self, device: torch.device) -> Tensor:
        """Position of the query minus position of the key's first token: (t, s) or (B, t, s)."""
        position, start = self.places(device)
        return position - start

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


@dataclass(frozen=True)
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
    """The tables of a score term by name: its fields that are tensors of real numbers."""
    values = ((item.name, getattr(term, item.name)) for item in fields(term))
    return {name: value for name, value in values if isinstance(value, Tensor) and value.is_floating_point()}


def of_heads(x: Tensor, heads: slice, num_heads: int) -> Tensor:
    """The rows of some of the call's heads in a score term's tensor (H, …); all of a tensor that is (1, …)."""
    return x[heads] if x.size(0) == num_heads else x


@dataclass(frozen=True)
class Call:
    """Arguments of :func:`~fairseq_poolingformer.attention.band_attention`; :meth:`of` checks them."""

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    window: Window
    masks: Masks
    pooling: Pooling | None = None
    score_terms: tuple[ScoreTerm, ...] = ()
    query_offset: int = 0
    dropout_p: float = 0.0
    return_lse: bool = False
    seed: Tensor | None = None  # of dropout; None to draw one

    @classmethod
    def of(
        cls,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        masks: Masks | None = None,
        global_mask: Tensor | GlobalTokens | None = None,
        key_padding_mask: Tensor | None = None,
        score_terms: Sequence[ScoreTerm] = (),
        scale: float | None = None,
        **arguments: Any,
    ) -> Call:
        """The call that ``band_attention``'s arguments ask for, with defaults filled in.

        Raises:
            ValueError: an argument is out of range.
        """
        require_kind(Tensor, query=query, key=key, value=value)
        scale = max(1, query.size(-1)) ** -0.5 if scale is None else scale
        masks = Masks.of(masks, global_mask, key_padding_mask)
        call = cls(query, key, value, scale, masks=masks, score_terms=tuple(score_terms), **arguments)
        call._check_tensors()
        call._check_pattern()
        return call

    def _check_tensors(self) -> None:
        query, key, value = self.query, self.key, self.value
        for name, x in (("query", query), ("key", key), ("value", value)):
            if x.dim() != 4:
                raise ValueError(f"{name} must be (B, H, length, D), got shape {tuple(x.shape)}")
            if x.dtype != query.dtype or x.device != query.device:
                raise ValueError(f"{name} is {x.dtype} on {x.device}, query is {query.dtype} on {query.device}")
        if query.dtype not in DTYPES:
            raise ValueError(f"query must be one of {DTYPES}, got {query.dtype}")
        batch, heads, queries, head_dim = query.shape
        keys = key.size(2)
        if key.shape != (batch, heads, keys, head_dim) or value.shape != key.shape:
            raise ValueError(
                f"key and value must be (B, H, S, D) = ({batch}, {heads}, S, {head_dim}) like query, "
                f"got key {tuple(key.shape)}, value {tuple(value.shape)}"
            )
        if queries < 1 or keys < 1 or head_dim < 1:  # min() would put lengths in order in exported graphs
            raise ValueError(
                f"query and key must have at least one position and one channel, got {queries} and {keys} positions "
                f"of {head_dim} channels"
            )
        for name, mask in (("global_mask", self.global_mask), ("key_padding_mask", self.key_padding_mask)):
            if mask is not None and (mask.shape != (batch, keys) or mask.dtype != torch.bool):
                raise ValueError(f"{name} must be {(batch, keys)} bool, got {tuple(mask.shape)} {mask.dtype}")
            if mask is not None and mask.device != query.device:
                raise ValueError(f"{name} is on {mask.device}, query is on {query.device}")

    def _check_pattern(self) -> None:
        require_kind(Window, window=self.window)
        require_kind(Pooling, True, pooling=self.pooling)
        for term in self.score_terms:
            require_kind(ScoreTerm, score_terms=term)
        if self.pooling is not None and self.global_mask is not None:
            raise ValueError("global_mask marks tokens, but the keys are pooled; leave it out with pooling")
        dilations = self.window.head_dilations(self.query.size(1))
        if self.pooling is not None and set(dilations) != {1}:
            raise ValueError(f"a window over pooled keys cannot be dilated, got dilation {self.window.dilation}")
        if not 0.0 <= self.dropout_p < 1.0:
            raise ValueError(f"dropout_p must be in [0, 1), got {self.dropout_p}")
        for term in self.score_terms:
            reason = term.why_not(self)
            if reason is not None:
                raise ValueError(f"{type(term).__name__} cannot be used here: {reason}")

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
        return self.masks.global_mask

    @property
    def key_padding_mask(self) -> Tensor | None:
        """(B, S) bool, True at keys that no query sees."""
        return self.masks.padding

    def keep_mask(self) -> KeepMask:
        """The call's dropout mask."""
        if self.seed is None:
            return KeepMask.draw(self.dropout_p, self.query.device)
        return KeepMask(self.dropout_p, self.seed)

    def global_queries(self) -> GlobalTokens | None:
        """The global tokens among the queries, as indices into the queries; None without any."""
        num_queries, num_keys = self.query.size(2), self.key.size(2)
        start, of_keys = self.query_offset, self.global_mask if self.masks.global_queries else None
        if of_keys is None:
            return None
        if start == 0 and num_queries == num_keys:
            return self.masks.global_keys
        mask = of_keys.new_zeros(self.query.size(0), num_queries)
        first, last = max(0, start), min(num_keys, start + num_queries)
        if first < last:
            mask[:, first - start : last - start] = of_keys[:, first:last]
        tokens = GlobalTokens(mask)
        return tokens if tokens.num_slots else None
