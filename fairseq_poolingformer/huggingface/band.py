"""``attn_implementation="band"``: the sliding windows of any of transformers' models, in memory linear in the length.

Importing this registers the name. transformers' own attention without a kernel for GPUs computes a window as full
attention with an n × n mask; ``band`` runs :func:`~fairseq_poolingformer.attention.band_attention` instead. Full
attention and a single new token go to ``sdpa``. So does a pattern that is not a window, with a warning. What ``band``
does not understand, it refuses: models outside of the attention interface, scores that a layer changes, masks that a
model computes with.

A graph of ``torch.compile`` has the windows as calls of one operator, an exported one as plain operations; packed rows,
which cannot be looked for in a graph, go to ``sdpa``.

transformers counts a window otherwise than this package: a causal ``sliding_window`` of w shows a token itself and
w − 1 before it, ``Window(w - 1, 0)``; a bidirectional one w on each side, ``Window(w)``.
"""

from __future__ import annotations

import inspect
import logging
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial, wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import and_masks, causal_mask_function, packed_sequence_mask_function, sdpa_mask
from transformers.utils import TransformersKwargs

from fairseq_poolingformer.attention import Window, band_attention
from fairseq_poolingformer.attention.compiler import exporting
from fairseq_poolingformer.attention.patterns import UNLIMITED

NAME = "band"
# what sdpa leaves alone, too: the mask shows the window; tokenizers, losses and kernels for GPUs give the rest
HARMLESS = {"sliding_window", "token_type_ids", "labels", "cache_position", *TransformersKwargs.__annotations__}

logger = logging.getLogger(__name__)


def refusal(what: str, why: str) -> ValueError:
    """What ``band`` says of a model that it does not compute."""
    return ValueError(f"attn_implementation='band' cannot run {what}: {why}; load it with attn_implementation='eager'")


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

    def __or__(self, other: Distances | Tensor) -> Distances:
        if isinstance(other, Tensor):  # Gemma 3 opens its full layers with a constant
            other = EVERY if other.item() else NONE
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


@dataclass(frozen=True, eq=False)
class WindowMask:
    """How far each query sees, and which keys are padding, in the place of a mask (B, 1, T, S) bool.

    transformers passes what has four dimensions on to the layers as it is. This is no tensor: it has no n × n numbers,
    loses nothing where it is moved or compiled, and refuses whatever is computed with it.
    """

    window: Window
    query_offset: int  # position of the first query minus that of the first key
    num_queries: int  # T
    is_token: Tensor  # (B, S) bool, False at padding
    documents: Tensor | None = None  # (B, T) that of each token in packed rows; None where a row is one document
    model: str = "this model"
    dense: Callable[[], Tensor | None] = lambda: None  # makes sdpa's mask of the same pattern

    dtype = torch.bool
    ndim = 4
    device = property(lambda self: self.is_token.device)
    shape = property(lambda self: torch.Size((len(self.is_token), 1, self.num_queries, self.is_token.size(1))))

    @cached_property
    def _has_padding(self) -> bool:
        return not self.is_token.all()

    def padding(self) -> Tensor | None:
        """(B, S) bool, True at padding; None without any, where one may look."""
        return ~self.is_token if torch.compiler.is_compiling() or self._has_padding else None

    def dim(self) -> int:
        """Four."""
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        """(B, 1, T, S), or one of them."""
        return self.shape if dim is None else self.shape[dim]

    def to(self, *args: Any, **kwargs: Any) -> WindowMask:
        """The mask on another device; a window has no dtype."""
        device = torch._C._nn._parse_to(*args, **kwargs)[0]
        documents = None if self.documents is None else self.documents.to(device)
        return replace(self, is_token=self.is_token.to(device), documents=documents)

    def contiguous(self, *_: Any, **__: Any) -> WindowMask:
        """Itself, where transformers prepares it for a cache."""
        return self

    def _computed(self, *_: Any, **__: Any) -> Any:
        raise refusal(self.model, "it computes with the mask of a window outside of the attention interface")

    __getitem__ = __bool__ = __eq__ = __ne__ = __invert__ = __neg__ = _computed
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _computed
    __and__ = __rand__ = __or__ = __ror__ = __lt__ = __le__ = __gt__ = __ge__ = _computed
    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What torch calls where one of its functions is given the mask."""
        masks = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, cls))
        raise refusal(next(masks, cls).model, f"it computes {func.__name__} of the mask of a window")

    def __getattr__(self, name: str) -> Any:
        """What Python calls for a tensor's other methods."""
        raise AttributeError(str(refusal(self.model, f"it computes {name} of the mask of a window")))


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
    """transformers' mask function: a :class:`WindowMask` for a window that hides keys, and for packed rows.

    For full attention in both directions, where a mask has to say so, it is (B, 1, T, S) without numbers of its own;
    else ``sdpa``'s mask, None or (B, 1, T, S): for full causal attention, a single query, and what is not a window.
    """
    sizes: dict[str, Any] = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "device": device}
    places: dict[str, Any] = {"q_offset": q_offset, "kv_offset": kv_offset, "local_size": local_size}
    dense = partial(sdpa_mask, **sizes, **places, mask_function=mask_function, attention_mask=attention_mask, **kwargs)
    if isinstance(attention_mask, WindowMask):  # of a model around this one
        return attention_mask
    if q_length == 1 or not isinstance(q_offset, int):  # a tensor is for compiled code
        return dense()
    config = kwargs.get("config")
    model, offset, documents = getattr(config, "model_type", "this model"), q_offset - kv_offset, None
    if torch.compiler.is_compiling():
        window = _window_in_a_graph(local_size, **kwargs)
        if window is None:
            return dense()
        sees_first = sees_last = False
    else:
        documents, inside = documents_of(mask_function) or (None, mask_function)
        window = window_of(inside)
        if window is None:
            if local_size is not None or (config and getattr(config.get_text_config(), "sliding_window", None)):
                _warn_once(model)
            return dense()
        sees_first = window.left >= offset + q_length - 1
        sees_last = window.right >= kv_length - 1 - offset
        if documents is None and sees_first and window.right == 0:
            return dense()
    is_token = torch.ones(batch_size, kv_length, dtype=torch.bool, device=device)
    if attention_mask is not None:  # the keys' part of it: a cache holds the last ones of a window only
        given = attention_mask[:, kv_offset : kv_offset + kv_length]
        is_token = F.pad(given, (0, kv_length - given.size(1)))  # what a cache of a fixed length has not filled
    if documents is None and sees_first and sees_last:
        can_skip = kwargs.get("allow_is_bidirectional_skip", False) and (local_size is None or kv_length < local_size)
        if can_skip and (attention_mask is None or (not torch.jit.is_tracing() and is_token.all())):
            return dense()
        return is_token[:, None, None].expand(-1, -1, q_length, -1)
    return WindowMask(window, offset, q_length, is_token, documents, model, dense)


def _window_in_a_graph(
    local_size: int | None,
    config: Any = None,
    allow_is_causal_skip: bool = False,
    allow_is_bidirectional_skip: bool = False,
    **unused: Any,
) -> Window | None:
    """The window that the configuration says, where the compiler cannot call a mask function; None for anything else.

    transformers allows to skip a mask where its function is the window alone: without documents, images or a model's
    own additions.
    """
    is_window = local_size is not None and local_size == getattr(config, "sliding_window", None)
    if not is_window or not (allow_is_causal_skip or allow_is_bidirectional_skip):
        return None
    return Window(local_size - 1, 0) if allow_is_causal_skip else Window(local_size)


@cache
def _warn_once(model: str) -> None:
    logger.warning("%s: the masks show more than windows, so sdpa computes the layers with n × n masks", model)


def band_attention_forward(
    module: nn.Module,
    query: Tensor,  # (B, H, T, D)
    key: Tensor,  # (B, H / G, S, D): each of its heads serves G neighbouring heads of the queries
    value: Tensor,
    attention_mask: Tensor | None,  # what window_mask gave, or any mask of the caller's
    dropout: float = 0.0,
    scaling: float | None = None,
    s_aux: Tensor | None = None,  # (H,) the scores of attention sinks, which take weight and give nothing
    position_bias: Tensor | None = None,  # (1 or B, H, T, S), added to the scores
    is_causal: bool | None = None,  # whether a layer without a mask is; None for the module's own
    output_attentions: bool = False,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function for ``band``: (B, T, H, D), and no weights."""
    layer = type(module).__name__
    for name, given in kwargs.items():
        if given is not None and name not in HARMLESS and not isinstance(given, (bool, str)):
            paged = "it has a paged cache, whose rows are not whole documents: turn continuous batching off"
            raise refusal(layer, paged if name == "cache" else f"it hands over {name!r}, which may change its scores")
    if s_aux is not None and position_bias is not None:
        raise refusal(layer, "it adds a bias to its scores beside sinks")
    if output_attentions:
        _warn_of_weights_once()
    mask: Any = attention_mask
    lengths = (query.size(2), key.size(2))
    if isinstance(mask, WindowMask):
        if mask.shape[2:] != lengths:
            raise refusal(layer, f"it has {lengths} queries and keys, and its mask is for {tuple(mask.shape[2:])}")
        if position_bias is not None:  # which is n × n itself
            mask = mask.dense()
    if s_aux is None and not isinstance(mask, WindowMask):
        arguments: dict[str, Any] = {"scaling": scaling, "is_causal": is_causal, "position_bias": position_bias}
        return sdpa_attention_forward(module, query, key, value, mask, dropout, **arguments)
    if mask is None:  # which transformers leaves out where sdpa needs none
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        window = Window.unlimited(causal=is_causal and lengths[0] > 1)
        is_token = torch.ones(key.size(0), lengths[1], dtype=torch.bool, device=key.device)
        mask = WindowMask(window, 0, lengths[0], is_token)
    groups = query.size(1) // key.size(1)
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
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

    def attend(*tensors: Tensor, hidden: Tensor | None = None) -> Tensor:
        in_graph = torch.compiler.is_dynamo_compiling() and not exporting() and not dropout_p
        if in_graph:
            attended, lse = _in_graph(*tensors, hidden, mask.window.left, mask.window.right, mask.query_offset, scale)
        elif sinks is None:
            return band_attention(*tensors, key_padding_mask=hidden, **arguments)
        else:
            attended, lse = band_attention(*tensors, key_padding_mask=hidden, return_lse=True, **arguments)
        if sinks is None:
            return attended
        # a sink adds exp(sink) to the denominator exp(lse), and nothing to the numerator
        return attended * (lse - sinks[:, None]).sigmoid()[..., None].to(attended.dtype)

    if mask.documents is None:
        return attend(query, key, value, hidden=mask.padding())[..., :width]
    rows = []
    for row, documents in enumerate(mask.documents):  # each by itself, as if it stood alone
        lengths = torch.unique_consecutive(documents, return_counts=True)[1].tolist()
        parts = zip(*(x[row : row + 1].split(lengths, 2) for x in (query, key, value)), strict=True)
        rows.append(torch.cat([attend(*part) for part in parts], 2))
    return torch.cat(rows)[..., :width]


def _with_lse(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hidden: Tensor | None,
    left: int,
    right: int,
    query_offset: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    masks = {"key_padding_mask": hidden, "query_offset": query_offset, "scale": scale}
    out, lse = band_attention(query, key, value, window=Window(left, right), return_lse=True, **masks)
    return out.contiguous(), lse.contiguous()  # as the compiler is told


# the operator without dropout as one node of a compiled graph, whose backward pass computes it once more
_in_graph = torch.library.custom_op("fairseq_poolingformer::window_attention", _with_lse, mutates_args=())


@torch.library.custom_op("fairseq_poolingformer::window_attention_backward", mutates_args=())
def _backward_in_graph(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hidden: Tensor | None,
    left: int,
    right: int,
    query_offset: int,
    scale: float,
    grad: Tensor,
    grad_of_lse: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    tensors = [x.detach().requires_grad_() for x in (query, key, value)]
    autograd = torch._C.DispatchKey.AutogradFunctionality  # which torch leaves out inside of such an operator
    with torch.enable_grad(), torch._C._SetExcludeDispatchKeyGuard(autograd, False):
        found = _with_lse(*tensors, hidden, left, right, query_offset, scale)
    return tuple(x.contiguous() for x in torch.autograd.grad(found, tensors, (grad, grad_of_lse)))


@_in_graph.register_fake
def _(query: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    return query.new_empty(query.shape), query.new_empty(query.shape[:3], dtype=wide)


@_backward_in_graph.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.rest = inputs[4:]


def _gradients(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
    return (*_backward_in_graph(*ctx.saved_tensors, *ctx.rest, *grads), None, None, None, None, None)


_in_graph.register_autograd(_gradients, setup_context=_save)


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
    logger.warning(
        "'band' gives no weights: load the model with attn_implementation='eager' for output_attentions=True"
    )


@cache
def _is_outside(model_class: Any) -> bool:
    """Whether an attention of a class of models is not behind transformers' attention interface.

    transformers has no flag for it, and reads its sources for ``set_attn_implementation``; so does this, for a class
    and those that it is made of.
    """
    if not (model_class._supports_sdpa or model_class._supports_attention_backend):
        return True
    for base in model_class.__mro__:
        if not issubclass(base, PreTrainedModel) or base is PreTrainedModel:
            continue
        try:
            source = inspect.getsource(sys.modules[base.__module__])
        except (KeyError, OSError, TypeError):  # of a notebook: those that it is made of say it
            continue
        has_attention = re.search(r"^class \w*Attention\w*\(nn\.Module\):", source, re.MULTILINE)
        by_name = re.search(r"_CLASSES\[(self\.)?(config\.)?_?attn_implementation\]", source)  # KeyError: 'band'
        if by_name or (has_attention and "ALL_ATTENTION_FUNCTIONS" not in source):
            return True
    return False


_implementation_of = PreTrainedModel.get_correct_attn_implementation


@wraps(_implementation_of)
def _checked(self: PreTrainedModel, requested_attention: str | None, *args: Any, **kwargs: Any) -> str:
    """Refuse models that would take the name, and then add a mask of True and False to their scores."""
    model_class: Any = type(self)
    if requested_attention == NAME and _is_outside(model_class):
        raise refusal(
            model_class.__name__, "its attention is not, or not all, behind transformers' attention interface"
        )
    return _implementation_of(self, requested_attention, *args, **kwargs)


PreTrainedModel.get_correct_attn_implementation = _checked  # type: ignore[method-assign]
AttentionInterface.register(NAME, band_attention_forward)
AttentionMaskInterface.register(NAME, window_mask)
