"""``attn_implementation="band"``: the sliding windows of any of transformers' models, in memory linear in the length.

Importing this registers the name. transformers' own attention without a kernel for GPUs computes a window as full
attention with an n × n mask; ``band`` runs :func:`~fairseq_poolingformer.attention.band_attention` instead. Full
attention and a single new token go to ``sdpa``. So does a pattern that is not a window, with a warning.

transformers counts a window otherwise than this package: a causal ``sliding_window`` of w shows a token itself and
w − 1 before it, ``Window(w - 1, 0)``; a bidirectional one w on each side, ``Window(w)``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import and_masks, causal_mask_function, packed_sequence_mask_function, sdpa_mask

from fairseq_poolingformer.attention import Window, band_attention
from fairseq_poolingformer.attention.patterns import UNLIMITED

NAME = "band"

logger = logging.getLogger(__name__)


class NotAWindowError(Exception):
    """A mask depends on more than the distance between query and key."""


@dataclass(frozen=True)
class Distances:
    """The distances, position of the query minus position of the key, from ``least`` to ``greatest`` are seen.

    It takes the place of a Boolean tensor where a mask function of transformers is called with :class:`Position`.
    """

    least: float
    greatest: float
    device: None = None

    def __and__(self, other: Distances) -> Distances:
        return Distances(max(self.least, other.least), min(self.greatest, other.greatest))

    def __or__(self, other: Distances) -> Distances:
        first, second = sorted((self, other), key=lambda distances: distances.least)
        if first.least > first.greatest:
            return second
        if second.least > first.greatest + 1 and second.least <= second.greatest:
            raise NotAWindowError
        return Distances(first.least, max(first.greatest, second.greatest))

    def to(self, device: None) -> Distances:
        """Itself: a mask function moves its parts to one device."""
        return self


EVERY, NONE = Distances(-math.inf, math.inf), Distances(math.inf, -math.inf)


@dataclass(frozen=True, eq=False)
class Position:
    """``queries``·(position of the query) + ``keys``·(position of the key) + ``constant``, in whole numbers."""

    queries: int
    keys: int
    constant: int = 0

    def __add__(self, other: Position | int) -> Position:
        if not isinstance(other, Position):
            return Position(self.queries, self.keys, self.constant + other)
        return Position(self.queries + other.queries, self.keys + other.keys, self.constant + other.constant)

    def __neg__(self) -> Position:
        return Position(-self.queries, -self.keys, -self.constant)

    def __sub__(self, other: Position | int) -> Position:
        return self + -other

    def __abs__(self) -> Magnitude:
        return Magnitude(self)

    def __ge__(self, other: Position | int) -> Distances:
        form = self - other
        if form.queries == -form.keys and abs(form.queries) <= 1:
            if form.queries == 0:
                return EVERY if form.constant >= 0 else NONE
            least = -form.constant * form.queries
            return Distances(least, math.inf) if form.queries == 1 else Distances(-math.inf, least)
        if min(form.queries, form.keys, form.constant) >= 0:  # positions are
            return EVERY
        raise NotAWindowError

    def __gt__(self, other: Position | int) -> Distances:
        return self - 1 >= other

    def __le__(self, other: Position | int) -> Distances:
        return -self >= -other

    def __lt__(self, other: Position | int) -> Distances:
        return -self > -other

    def new_ones(self, *_: Any, **__: Any) -> Distances:
        """What a conjunction begins with."""
        return EVERY

    def new_zeros(self, *_: Any, **__: Any) -> Distances:
        """What a disjunction begins with."""
        return NONE


@dataclass(frozen=True)
class Magnitude:
    """The absolute value of a form; only its upper limits are windows."""

    form: Position

    def __le__(self, limit: int) -> Distances:
        return (self.form <= limit) & (-self.form <= limit)

    def __lt__(self, limit: int) -> Distances:
        return self <= limit - 1


def window_of(mask_function: Callable) -> Window | None:
    """The window that a mask function of transformers shows; None if what it shows is not a window."""
    try:
        seen = mask_function(0, 0, Position(1, 0), Position(0, 1))
    except (NotAWindowError, TypeError, IndexError, AttributeError):  # it does other things with positions
        return None
    if not isinstance(seen, Distances) or seen.least > 0 or seen.greatest < 0:
        return None
    return Window(*(int(min(side, UNLIMITED)) for side in (seen.greatest, -seen.least)))


def documents_of(mask_function: Callable) -> tuple[Tensor, Callable] | None:
    """For packed rows: (B, T) the document of each token, and the mask function inside a document; else None.

    transformers hands the documents to the mask function alone, so they are taken out of it.
    """
    if mask_function.__code__ is not and_masks(mask_function).__code__:
        return None
    (parts,) = (cell.cell_contents for cell in mask_function.__closure__ or ())
    if len(parts) != 2 or parts[0].__code__ is not packed_sequence_mask_function(torch.empty(0)).__code__:
        return None
    inside = dict(zip(parts[1].__code__.co_freevars, parts[1].__closure__ or (), strict=True))
    return parts[0].__closure__[0].cell_contents, inside["mask_function"].cell_contents


class WindowMask(Tensor):
    """(B, 1, 1, S) bool, False at keys that are padding, and how far each query sees.

    It is a tensor with four dimensions, since transformers passes these on to the layers as they are.

    Attributes:
        window: how far a query sees; None in a tensor that was made of a mask.
        query_offset: position of the first query minus that of the first key.
        key_padding_mask: (B, S) bool, True at padding; None without any.
        documents: (B, T) the document of each token in packed rows; None where a row is one document.
    """

    window: Window | None = None
    query_offset: int = 0
    key_padding_mask: Tensor | None = None
    documents: Tensor | None = None

    @classmethod
    def of(cls, window: Window, query_offset: int, is_token: Tensor, documents: Tensor | None = None) -> WindowMask:
        """The mask; ``is_token`` is (B, S) bool."""
        mask = is_token[:, None, None].as_subclass(cls)
        mask.window, mask.query_offset, mask.documents = window, query_offset, documents
        mask.key_padding_mask = None if is_token.all() else ~is_token
        return mask

    def contiguous(self, *_: Any, **__: Any) -> WindowMask:
        """Itself, where transformers prepares it for a cache."""
        return self


@torch.compiler.disable
def window_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable = causal_mask_function,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> WindowMask | Tensor | None:
    """transformers' mask function for ``band``.

    Returns:
        ``sdpa``'s mask, None or (B, 1, T, S), for a single query, for full attention that needs no mask, and for
        patterns that are not windows; (B, 1, 1, S) for full attention in both directions; else a :class:`WindowMask`.
    """
    if q_length > 1 and isinstance(q_offset, int):  # a tensor is for compiled code
        documents, inside = documents_of(mask_function) or (None, mask_function)
        window, offset = window_of(inside), q_offset - kv_offset
        is_plain = documents is None and attention_mask is None and offset == 0 and q_length == kv_length
        is_full = window in (Window(UNLIMITED), Window(UNLIMITED, 0))
        if window is not None and not (is_plain and is_full):
            if attention_mask is None:
                is_token = torch.ones(batch_size, kv_length, dtype=torch.bool, device=device)
            else:
                is_token = attention_mask[:, kv_offset : kv_offset + kv_length]
                is_token = F.pad(is_token, (0, kv_length - is_token.size(1)))
            if documents is None and window == Window(UNLIMITED):
                return is_token[:, None, None]
            return WindowMask.of(window, offset, is_token, documents)
        if window is None and local_size is not None:
            _warn_once(getattr(kwargs.get("config"), "model_type", "this model"))
    sizes = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "device": device}
    places = {"q_offset": q_offset, "kv_offset": kv_offset, "local_size": local_size}
    return sdpa_mask(**sizes, **places, mask_function=mask_function, attention_mask=attention_mask, **kwargs)


@cache
def _warn_once(model: str) -> None:
    logger.warning("%s: the mask of a layer with a window shows more than a window, so sdpa computes the layer", model)


def band_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function for ``band``.

    Args:
        module: the layer's attention.
        query: (B, H, T, D).
        key, value: (B, H / G, S, D): each of their heads serves G neighbouring heads of the queries.
        attention_mask: what :func:`window_mask` gave.
        s_aux: (H,) the scores of attention sinks, one a head, which take weight and give nothing.

    Returns:
        (B, T, H, D), and no weights.

    Raises:
        ValueError: the layer caps its scores.
    """
    if softcap is not None:
        raise ValueError(
            "attn_implementation='band' does not cap scores: load the model with attn_implementation='eager', or with "
            "attn_logit_softcapping=None, which changes what it computes"
        )
    if isinstance(attention_mask, WindowMask):
        if attention_mask.window is None:
            raise ValueError(
                f"{type(module).__name__} changes its mask: load the model with attn_implementation='sdpa'"
            )
    elif s_aux is None:
        arguments = {"dropout": dropout, "scaling": scaling, **kwargs}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **arguments)
    elif attention_mask is None:  # of a causal layer without a window
        is_token = torch.ones(key.size(0), key.size(2), dtype=torch.bool, device=key.device)
        attention_mask = WindowMask.of(Window(UNLIMITED, 0), key.size(2) - query.size(2), is_token)
    scale = query.size(-1) ** -0.5 if scaling is None else scaling
    groups = query.size(1) // key.size(1)
    parts = []
    for group in range(groups):  # so that no key is copied
        of_group = query[:, group::groups], key, value
        if s_aux is None:
            part = _attend(*of_group, attention_mask, dropout, scale)
        else:
            part = _attend_with_sinks(*of_group, s_aux[group::groups], attention_mask, dropout, scale)
        parts.append(part.transpose(1, 2))
    return torch.stack(parts, 3).flatten(2, 3), None


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout_p: float, scale: float, sinks: int = 0
) -> Tensor:
    """A head of queries for each head of keys, the first ``sinks`` of which every query sees."""
    if not isinstance(mask, WindowMask):
        return F.scaled_dot_product_attention(query, key, value, mask, dropout_p, scale=scale)
    arguments: dict[str, Any] = {"window": mask.window, "dropout_p": dropout_p, "scale": scale}
    if mask.documents is not None:
        return _attend_in_documents(query, key, value, mask.documents, sinks, arguments)
    hidden = mask.key_padding_mask
    return band_attention(
        query,
        key,
        value,
        global_mask=_first_keys(key, sinks),
        key_padding_mask=hidden if hidden is None else F.pad(hidden, (sinks, 0)),
        query_offset=mask.query_offset + sinks,
        **arguments,
    )


def _first_keys(key: Tensor, count: int) -> Tensor | None:
    if not count:
        return None
    return (torch.arange(key.size(2), device=key.device) < count).expand(key.size(0), -1)


def _attend_in_documents(
    query: Tensor, key: Tensor, value: Tensor, documents: Tensor, sinks: int, arguments: dict[str, Any]
) -> Tensor:
    """Each document of packed rows by itself."""
    rows = []
    for row, counts in enumerate(torch.unique_consecutive(of_row, return_counts=True)[1] for of_row in documents):
        parts, first = [], 0
        for count in counts.tolist():
            keys, values = (
                torch.cat([x[row : row + 1, :, :sinks], x[row : row + 1, :, sinks + first : sinks + first + count]], 2)
                for x in (key, value)
            )
            queries = query[row : row + 1, :, first : first + count]
            is_sink = _first_keys(keys, sinks)
            parts.append(band_attention(queries, keys, values, global_mask=is_sink, query_offset=sinks, **arguments))
            first += count
        rows.append(torch.cat(parts, 2))
    return torch.cat(rows)


def _attend_with_sinks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor,
    mask: Tensor,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """A sink is a key that every query sees, whose value is zero.

    Its score is the same for all queries: they have a 1 in one more dimension, where the sink's key has its score.
    """
    head_dim = query.size(-1)
    query = torch.cat([query, torch.ones_like(query[..., :1])], -1)
    sink = F.pad((sinks / scale).to(key.dtype).view(1, -1, 1, 1), (head_dim, 0)).expand(key.size(0), -1, -1, -1)
    key, value = torch.cat([sink, F.pad(key, (0, 1))], 2), F.pad(value, (0, 1, 1, 0))
    if not isinstance(mask, WindowMask):
        mask = F.pad(mask, (1, 0), value=mask.dtype == torch.bool)
    return _attend(query, key, value, mask, dropout_p, scale, sinks=1)[..., :head_dim]


AttentionInterface.register(NAME, band_attention_forward)
AttentionMaskInterface.register(NAME, window_mask)
