"""The attention operator: it has its arguments checked, picks a backend and calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict, overload

import torch
from torch import Tensor
from torch.compiler import is_exporting
from typing_extensions import Required, Unpack

from fairseq_poolingformer.attention import graph
from fairseq_poolingformer.attention.backends import BACKENDS, traced
from fairseq_poolingformer.attention.backends.choice import pick
from fairseq_poolingformer.attention.call import Call, ScoreTerm
from fairseq_poolingformer.attention.compiler import outside_the_compiler
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.masks import Masks
from fairseq_poolingformer.attention.patterns import Pooling, Window


class Arguments(TypedDict, total=False):
    """The named arguments of :func:`band_attention` that do not decide what it returns."""

    window: Required[Window]
    pooling: Pooling | None
    masks: Masks | None
    global_mask: Tensor | GlobalTokens | None
    key_padding_mask: Tensor | None
    score_terms: Sequence[ScoreTerm]
    query_offset: int
    dropout_p: float
    scale: float | None
    backend: str | None


@overload
def band_attention(
    query: Tensor, key: Tensor, value: Tensor, *, return_lse: Literal[False] = False, **arguments: Unpack[Arguments]
) -> Tensor: ...
@overload
def band_attention(
    query: Tensor, key: Tensor, value: Tensor, *, return_lse: Literal[True], **arguments: Unpack[Arguments]
) -> tuple[Tensor, Tensor]: ...
@overload
def band_attention(
    query: Tensor, key: Tensor, value: Tensor, *, return_lse: bool, **arguments: Unpack[Arguments]
) -> Tensor | tuple[Tensor, Tensor]: ...
def band_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    window: Window,
    pooling: Pooling | None = None,
    masks: Masks | None = None,
    global_mask: Tensor | GlobalTokens | None = None,
    key_padding_mask: Tensor | None = None,
    score_terms: Sequence[ScoreTerm] = (),
    query_offset: int = 0,
    dropout_p: float = 0.0,
    scale: float | None = None,
    backend: str | None = None,
    return_lse: bool = False,
) -> Any:
    """Attend to the keys in each query's window and to global tokens, in one softmax.

    ``softmax(scale·q_i·K_N(i)ᵀ + terms) V_N(i)`` (eq. 4, 8, 12–13), where N(i) are the keys that ``window`` (and
    ``pooling``) shows query i and all global tokens; or every token when i is global. A query that sees nothing returns
    zeros. On a GPU, products in float32 have the precision that ``torch.set_float32_matmul_precision`` asks for.

    Args:
        query: (B, H, T, D). Query t is at token position ``query_offset + t``.
        key: (B, H, S, D): tokens 0 … S−1, or with ``pooling`` the pooled keys of :func:`pool_keys`.
        value: (B, H, S, D).
        window: tokens visible on each side, dilated or not.
        pooling: how ``key`` and ``value`` were pooled; None for tokens.
        masks: the :class:`Masks` of the keys, which many calls share, in place of the next two.
        global_mask: (B, S) bool, True at global tokens, or their :class:`GlobalTokens`; not with ``pooling``.
        key_padding_mask: (B, S) bool, True at keys (tokens, or pooled keys) that no query sees, global or not.
        score_terms: terms that are added to the scores.
        query_offset: token position of query 0.
        dropout_p: probability of dropping an attention weight.
        scale: α; 1/sqrt(D) by default.
        backend: one of ``BACKENDS``; None picks the fastest that can run the call.
        return_lse: also return the natural logarithm of each softmax's denominator, with a gradient.

    Returns:
        (B, H, T, D), the dtype of ``query``. With ``return_lse`` a pair: this, and (B, H, T) in float32, or in float64
        for float64, -inf where a query sees nothing.

    Raises:
        ValueError: an argument is out of range, or the named backend cannot run the call.
    """
    arguments: dict[str, Any] = {
        "window": window,
        "pooling": pooling,
        "masks": masks,
        "global_mask": global_mask,
        "key_padding_mask": key_padding_mask,
        "score_terms": score_terms,
        "query_offset": query_offset,
        "dropout_p": dropout_p,
        "scale": scale,
        "return_lse": return_lse,
    }
    if is_exporting():
        return traced.run(Call.of(query, key, value, **arguments))
    if torch.compiler.is_compiling() and graph.takes(score_terms):
        return graph.run(Call.of(query, key, value, **arguments), backend)
    return _eager(query, key, value, backend, arguments)


@outside_the_compiler
def _eager(query: Tensor, key: Tensor, value: Tensor, backend: str | None, arguments: dict[str, Any]) -> Any:
    call = Call.of(query, key, value, **arguments)
    return BACKENDS[pick(call, backend)].run(call)
