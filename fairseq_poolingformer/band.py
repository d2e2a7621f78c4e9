"""``attn_implementation="band"``: the sliding windows of transformers' models, in memory linear in the length.

Importing this registers the name. Where ``sdpa`` computes a window as full attention with an n × n mask, ``band`` calls
:func:`~fairseq_poolingformer.attention.band_attention`. Layers of full attention, single new tokens and, with a
warning, patterns that are not windows go to ``sdpa``. Model types without windows are refused, and those that
``run_scripts/scan_band.py`` did not verify: their layers might add a Boolean mask to their scores. A graph of
``torch.compile`` has the windows as calls of one operator, an exported one as plain operations; packed rows cannot be
looked for in a graph, and go to ``sdpa``.

transformers counts a window otherwise than this package: a causal ``sliding_window`` of w shows a token itself and
w − 1 before it, ``Window(w - 1, 0)``; a bidirectional one w on each side, ``Window(w)``.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_poolingformer.attention import Window, band_attention
from fairseq_poolingformer.choices import UNLIMITED
from fairseq_poolingformer.extras import needing

with needing("huggingface"):
    from transformers import AttentionInterface, AttentionMaskInterface

NAME = "band"
TABLE = Path(__file__).with_name("band_types.json")  # model types whose windows were verified, and transformers
VERIFIED = set(json.loads(TABLE.read_text(encoding="utf-8"))["types"])
WINDOW_SETTING = re.compile("window|local_attention|attention_chunk")  # in the name of a configuration's setting
HARMLESS = {  # what sdpa ignores, too: tokenizers, losses and kernels for GPUs hand these over
    *("token_type_ids", "labels", "cache_position", "position_ids", "num_items_in_batch"),
    *("output_hidden_states", "output_router_logits"),
    *("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"),
}
PAGED = ("cache", "read_index", "block_table")  # of continuous batching, the first before transformers 5.24

logger = logging.getLogger(__name__)


def refusal(what: str, why: str) -> ValueError:
    """The error for a model that ``band`` does not compute."""
    return ValueError(
        f"attn_implementation='band' cannot run {what}: {why}; load it with attn_implementation='sdpa' "
        "(or 'eager', where the model has no 'sdpa')"
    )


def check_type(config: Any, has_window: bool) -> None:
    """Refuse a model type that the table lacks; ``has_window``: whether a mask of it has a window."""
    if config.model_type in VERIFIED:
        return
    if has_window or any(map(WINDOW_SETTING.search, config.to_dict())):
        why = f"`python run_scripts/scan_band.py {config.model_type}` in a clone compares it with 'sdpa' and says what "
        raise refusal(f"model type {config.model_type!r}, whose windows were not verified", f"{why}differs")
    raise refusal(
        f"model type {config.model_type!r}",
        "it has no windows, so that there is nothing to save (the other part of a composite model can have windows: "
        "attn_implementation={'text_config': 'band', 'vision_config': 'sdpa'})",
    )


@dataclass(frozen=True, eq=False)
class WindowMask:
    """A window and the padded keys, in the place of a mask (B, 1, T, S) bool; the last query is that of the last key.

    transformers passes what has four dimensions on to the layers as it is. This is no tensor: it has no n × n numbers,
    loses nothing where it is moved or compiled, and refuses whatever is computed with it.
    """

    window: Window
    num_queries: int  # T
    is_token: Tensor  # (B, S) bool, False at padding
    starts: Tensor | None = None  # (B, S) bool: first tokens of documents in packed rows; None: one document a row
    model: str = "this model"
    dense: Callable[[], Tensor | None] = lambda: None  # makes sdpa's mask of the same pattern

    dtype = torch.bool
    ndim = 4
    device = property(lambda self: self.is_token.device)
    shape = property(lambda self: torch.Size((len(self.is_token), 1, self.num_queries, self.is_token.size(1))))
    query_offset = property(lambda self: self.is_token.size(1) - self.num_queries)

    @cached_property
    def _has_padding(self) -> bool:
        return not self.is_token.all()

    def padding(self) -> Tensor | None:
        """(B, S) bool, True at padding; None without any, where one may look."""
        return ~self.is_token if torch.compiler.is_compiling() or self._has_padding else None

    @cached_property
    def documents(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Packed rows as padded rows of documents, one group for each power of two of their lengths.

        For N documents of at most L tokens: (N, L) the tokens as places in B·S, (N, L) bool, True beyond a document's
        end, and the keys hidden there and by padding. A single group would have the longest one's length for all.
        """
        assert self.starts is not None
        first = self.starts.flatten().nonzero()[:, 0]
        lengths = torch.cat([first[1:], first.new_tensor([self.starts.numel()])]) - first
        groups, powers = [], lengths.double().log2().ceil()
        for power in powers.unique():
            in_group = powers == power
            length = lengths[in_group][:, None]
            place = torch.arange(int(length.max()), device=first.device)
            beyond = place >= length
            places = first[in_group][:, None] + place.where(~beyond, 0)
            groups.append((places, beyond, beyond | ~self.is_token.flatten()[places]))
        return groups

    def dim(self) -> int:
        """Four."""
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        """(B, 1, T, S), or one of them."""
        return self.shape if dim is None else self.shape[dim]

    def to(self, *args: Any, **kwargs: Any) -> WindowMask:
        """The mask on another device; a window has no dtype."""
        device = self.is_token.new_empty(0).to(*args, **kwargs).device
        starts = None if self.starts is None else self.starts.to(device)
        return replace(self, is_token=self.is_token.to(device), starts=starts)

    def contiguous(self, *_: Any, **__: Any) -> WindowMask:
        """Itself, where transformers prepares it for a cache."""
        return self

    def _computed(self, *_: Any, **__: Any) -> Any:
        raise refusal(self.model, "it computes with the mask of a window outside of the attention interface")

    def __getitem__(self, index: Any) -> WindowMask:
        """The mask of the last queries: layers of Gemma 4 with shared keys compute those alone."""
        every, rows = slice(None), index[2] if isinstance(index, tuple) and len(index) == 4 else None
        if not isinstance(rows, slice) or index != (every, every, slice(rows.start, None), every):
            return self._computed()
        num_queries = len(range(self.num_queries)[rows])
        if num_queries == self.num_queries:
            return self
        if self.starts is not None:
            raise refusal(self.model, "it leaves out queries of packed rows")
        return replace(self, num_queries=num_queries, dense=lambda: self.dense()[index])

    __bool__ = __eq__ = __ne__ = __invert__ = __neg__ = _computed
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _computed
    __and__ = __rand__ = __or__ = __ror__ = __lt__ = __le__ = __gt__ = __ge__ = _computed
    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse torch's functions of the mask."""
        masks = (x for x in (*args, *(kwargs or {}).values()) if isinstance(x, cls))
        raise refusal(next(masks, cls).model, f"it computes {func.__name__} of the mask of a window")

    def __getattr__(self, name: str) -> Any:
        """Refuse a tensor's other methods."""
        raise AttributeError(str(refusal(self.model, f"it computes {name} of the mask of a window")))


def window_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    *,
    config: Any,
    mask_function: Callable,
    attention_mask: Any = None,
    local_size: int | None = None,
    device: torch.device | str = "cpu",
    **flags: Any,
) -> WindowMask | Tensor | None:
    """transformers' mask function: a :class:`WindowMask` for a window that hides keys, and for packed rows.

    For full attention in both directions, where a mask has to say so, it is (B, 1, T, S) without numbers of its own;
    else ``sdpa``'s mask, None or (B, 1, T, S): for full causal attention, a single query, and what is not a window.
    """
    if isinstance(attention_mask, WindowMask):  # of a model around this one
        return attention_mask
    check_type(config, local_size is not None)
    model = config.model_type
    sizes: dict[str, Any] = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "device": device}
    sizes |= {"q_offset": q_offset, "kv_offset": kv_offset, "local_size": local_size, "config": config}
    sdpa_mask = AttentionMaskInterface()["sdpa"]
    # None says causal to the layer, which tells nothing where T and S differ
    skip = {"allow_is_causal_skip": False} if 1 < q_length != kv_length else {}
    dense = partial(sdpa_mask, **sizes, mask_function=mask_function, attention_mask=attention_mask, **flags | skip)
    if q_length == 1 or not isinstance(q_offset, int):  # a tensor is for compiled code
        return dense()
    is_causal = "allow_is_bidirectional_skip" not in flags
    left = UNLIMITED if local_size is None else local_size - is_causal
    window, starts = Window(left, 0 if is_causal else left), None
    if torch.compiler.is_compiling():
        # a skip is allowed where the mask function is the window alone: no documents, images or a model's own additions
        may_skip = flags.get("allow_is_causal_skip") or flags.get("allow_is_bidirectional_skip")
        if local_size is None or local_size != getattr(config, "sliding_window", None) or not may_skip:
            return dense()
        hides_left = hides_right = True
    else:
        rows = (range(q_offset, q_offset + q_length), range(kv_offset, kv_offset + kv_length))
        pattern = partial(_pattern, mask_function, batch_size, *rows, device)
        shown = pattern(window) or (is_causal and pattern(Window(left)))  # Gemma 3's encoders: |distance| < w
        if not shown:
            _warn_once(model)
            return dense()
        window, starts = shown
        hides_left, hides_right = window.left < kv_length - 1, window.right < kv_length - 1
    is_token = torch.ones(batch_size, kv_length, dtype=torch.bool, device=device)
    if attention_mask is not None:  # the keys' part of it: a cache holds the last ones of a window only
        part = attention_mask[:, kv_offset : kv_offset + kv_length]
        is_token = F.pad(part, (0, kv_length - part.size(1)))  # what a cache of a fixed length has not filled
    if starts is None and not hides_left and not hides_right:
        can_skip = flags.get("allow_is_bidirectional_skip") and (local_size is None or kv_length < local_size)
        if can_skip and (attention_mask is None or (not torch.jit.is_tracing() and is_token.all())):
            return dense()
        return is_token[:, None, None].expand(-1, -1, q_length, -1)
    full_causal = starts is None and not hides_left and window.right == 0
    if full_causal or q_offset - kv_offset != kv_length - q_length:  # the latter: caches of a fixed length, and MTP's
        return dense()
    return WindowMask(window, q_length, is_token, starts, model, dense)


def _pattern(
    mask_function: Callable, batch_size: int, queries: range, keys: range, device: Any, window: Window
) -> tuple[Window, Tensor | None] | None:
    """Confirm that a mask function of transformers shows ``window``, at the pairs that tell; else None.

    Returns:
        The window, and (B, T) bool where documents begin in packed rows, or None where each row is one document.
    """
    query = torch.arange(queries.start, queries.stop, device=device)[:, None]
    batch, head = (torch.arange(size, device=device)[:, None, None, None] for size in (batch_size, 1))

    def shown(key: Tensor) -> Tensor:  # (T, n) or (B, T, n) -> (B, T, n); False beyond the row
        inside = key.clamp(keys[0], keys[-1])
        pairs = mask_function(batch, head, query, inside[:, None] if key.ndim == 3 else inside)
        return pairs.expand(batch_size, 1, *key.shape[-2:])[:, 0] & (key == inside)

    first, documents = torch.full_like(query, keys[0]), None
    try:
        if window.right == 0 < window.left and queries == keys:
            starts = ~shown(query - 1)[..., 0]  # the diagonal below the main one says where documents begin
            if starts[:, 1:].any():
                documents = starts
                first = query[:, 0].where(starts, keys[0]).cummax(1).values[..., None]
        lowest, highest = query - window.left, query + window.right
        edges = [first.maximum(lowest), lowest.expand_as(first), highest.expand_as(first)]
        beyond = [edges[0] - 1, edges[1] - 1, edges[2] + 1]
        near = [(query + step).expand_as(first) for step in (-1, 0, 1)]
        ends = [torch.full_like(first, end) for end in (keys[0], keys[-1])]
        key = torch.cat([*edges, *beyond, *near, *ends], -1)
        expected = (key >= first) & (key >= lowest) & (key <= highest) & (key <= keys[-1])
        return (window, documents) if torch.equal(shown(key), expected.expand(batch_size, -1, -1)) else None
    except (RuntimeError, AttributeError, IndexError, TypeError, ValueError):  # it takes no tensors of positions
        return None


@cache
def _warn_once(model: str) -> None:
    logger.warning("%s: the masks show more than windows, so sdpa computes the layers with n × n masks", model)


def band_attention_forward(
    module: nn.Module,
    query: Tensor,  # (B, H, T, D)
    key: Tensor,  # (B, H / G, S, D): each of its heads serves G neighbouring heads of the queries
    value: Tensor,
    attention_mask: Any,  # the result of window_mask, or any mask of the caller's
    dropout: float = 0.0,
    scaling: float | None = None,
    s_aux: Tensor | None = None,  # (H,) the scores of attention sinks, which take weight and give nothing
    position_bias: Tensor | None = None,  # (1 or B, H, T, S), added to the scores
    is_causal: bool | None = None,  # whether a layer without a mask is; None for the module's own
    output_attentions: bool = False,
    sliding_window: int | None = None,  # by one convention or another; the mask has the window
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function for ``band``: (B, T, H, D), and no weights."""
    layer, mask = type(module).__name__, attention_mask
    if hasattr(module, "config"):  # of a vision tower, which asks for no mask
        check_type(module.config, isinstance(mask, WindowMask))
    for name, argument in kwargs.items():
        if argument is not None and name not in HARMLESS and not isinstance(argument, (bool, str)):
            paged = "it has a paged cache, whose rows are not whole documents: turn continuous batching off"
            raise refusal(layer, paged if name in PAGED else f"it hands over {name!r}, which may change its scores")
    if s_aux is not None and position_bias is not None:
        raise refusal(layer, "it adds a bias to its scores beside sinks")
    if output_attentions:
        _warn_of_weights_once()
    num_queries, num_keys = query.size(2), key.size(2)
    if isinstance(mask, WindowMask):
        left = mask.window.left
        if mask.shape[2:] != (num_queries, num_keys):
            lengths = (num_queries, num_keys)
            raise refusal(layer, f"it has {lengths} queries and keys, and its mask is for {tuple(mask.shape[2:])}")
        if sliding_window is not None and left != UNLIMITED and sliding_window not in (left, left + 1):
            raise refusal(layer, f"its sliding_window is {sliding_window}, and its mask shows {left} tokens before one")
        if position_bias is not None:  # which is n × n itself
            mask = mask.dense()
    if mask is None:
        is_causal = (getattr(module, "is_causal", True) if is_causal is None else is_causal) and num_queries > 1
        if is_causal and num_queries != num_keys:
            raise refusal(layer, f"it is causal and has no mask for its {num_queries} queries and {num_keys} keys")
    if s_aux is None and not isinstance(mask, WindowMask):
        arguments: dict[str, Any] = {"scaling": scaling, "is_causal": is_causal, "position_bias": position_bias}
        return AttentionInterface()["sdpa"](module, query, key, value, mask, dropout, **arguments)
    if mask is None:  # which transformers leaves out where sdpa, whose function swallows sinks, needs none
        is_token = torch.ones(key.size(0), num_keys, dtype=torch.bool, device=key.device)
        mask = WindowMask(Window.unlimited(causal=bool(is_causal)), num_queries, is_token)
    groups = query.size(1) // key.size(1)
    key, value = (x.repeat_interleave(groups, 1) if groups > 1 else x for x in (key, value))
    attend: Callable[..., Tensor] = _attend_in_window if isinstance(mask, WindowMask) else _attend_with_sinks
    scale = query.size(-1) ** -0.5 if scaling is None else scaling
    return attend(query, key, value, mask, s_aux, dropout, scale).transpose(1, 2).contiguous(), None


def _attend_in_window(
    query: Tensor, key: Tensor, value: Tensor, mask: WindowMask, sinks: Tensor | None, dropout_p: float, scale: float
) -> Tensor:
    """(B, H, T, width of a value)."""
    width, widest = value.size(-1), max(query.size(-1), value.size(-1))
    if width != query.size(-1):  # the operator takes heads of one width
        query, key, value = (F.pad(x, (0, widest - x.size(-1))) for x in (query, key, value))
    arguments: dict[str, Any] = {"window": mask.window, "dropout_p": dropout_p, "scale": scale}
    arguments["query_offset"] = mask.query_offset

    def attend(*tensors: Tensor, hidden: Tensor | None) -> Tensor:
        if sinks is None:
            return band_attention(*tensors, key_padding_mask=hidden, **arguments)
        attended, lse = band_attention(*tensors, key_padding_mask=hidden, return_lse=True, **arguments)
        # a sink adds exp(sink) to the denominator exp(lse), and nothing to the numerator
        return attended * (lse - sinks[:, None]).sigmoid()[..., None].to(attended.dtype)

    if mask.starts is None:
        return attend(query, key, value, hidden=mask.padding())[..., :width]
    tokens = [x.transpose(1, 2).flatten(0, 1) for x in (query, key, value)]  # (B·T, H, D)
    attended, order = [], []
    for places, beyond, hidden in mask.documents:
        rows = attend(*(x[places].transpose(1, 2) for x in tokens), hidden=hidden)
        attended.append(rows.transpose(1, 2)[~beyond])
        order.append(places[~beyond])
    together = torch.cat(attended)[torch.cat(order).argsort()]
    return together.unflatten(0, mask.starts.shape).transpose(1, 2)[..., :width]


def _attend_with_sinks(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, sinks: Tensor, dropout_p: float, scale: float
) -> Tensor:
    """``sdpa`` with any mask, which does not give its denominators: a sink is one more key, whose value is zero.

    Its score is the same for all queries: they have a 1 in one more dimension, where the sink's key has its score.
    """
    sink = F.pad((sinks / scale).to(key.dtype).view(1, -1, 1, 1), (query.size(-1), 0)).expand(key.size(0), -1, -1, -1)
    query = torch.cat([query, torch.ones_like(query[..., :1])], -1)
    key, value = torch.cat([sink, F.pad(key, (0, 1))], 2), F.pad(value, (0, 0, 1, 0))
    mask = F.pad(mask, (1, 0), value=mask.dtype == torch.bool)
    return F.scaled_dot_product_attention(query, key, value, mask, dropout_p, scale=scale)


@cache
def _warn_of_weights_once() -> None:
    logger.warning("'band' gives no weights: load the model with attn_implementation='eager' to have them")


AttentionInterface.register(NAME, band_attention_forward)
AttentionMaskInterface.register(NAME, window_mask)
