"""The masks of a batch and what follows from them, computed once and shared by all layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.compiler import is_exporting

from fairseq_poolingformer.attention.compiler import for_later, keeps_tensors, lazy_property
from fairseq_poolingformer.attention.global_tokens import GlobalTokens, SlottedTokens

P = ParamSpec("P")
R = TypeVar("R")


class Masks:
    """The global tokens and the padding of a batch.

    Make one for each batch and hand it to every layer: slots of global tokens, real tokens of pools and unseen-token
    counts are then computed once, and read again where activations are recomputed. A plain mask makes every layer
    compute them, and synchronize with the device; so does a Masks that is made inside a compiled function. Both masks
    are copied, so that later changes of the caller's have no effect.

    Args:
        global_mask: (B, S) bool, True at global tokens, or the :class:`GlobalTokens` of such a mask; None for none.
        padding: (B, S) bool, True at padding; None for none.

    Raises:
        ValueError: a mask is neither a tensor nor None.
    """

    global_queries = True  # whether global tokens, as queries, see every token

    def __init__(self, global_mask: Tensor | GlobalTokens | None = None, padding: Tensor | None = None) -> None:
        if not isinstance(padding, Tensor | None):
            raise ValueError(f"key_padding_mask must be a Tensor or None, got {type(padding).__name__}")
        self.global_tokens = GlobalTokens.of(global_mask)
        self.padding = None if padding is None else for_later(padding.clone)
        self._derived: dict[Any, Any] = {}
        if self.global_keys is not None and self.global_keys.known and not is_exporting():
            self.global_keys.settle()

    @classmethod
    def of(
        cls,
        masks: Masks | None,
        global_mask: Tensor | GlobalTokens | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> Masks:
        """``masks``, or those of two plain masks; ``ValueError`` where both are there."""
        if masks is None:
            return cls(global_mask, key_padding_mask)
        if not isinstance(masks, Masks):
            raise ValueError(f"masks must be a Masks or None, got {type(masks).__name__}")
        if global_mask is not None or key_padding_mask is not None:
            raise ValueError("masks has the global tokens and the padding: leave global_mask and key_padding_mask out")
        return masks

    def derived(self, function: Callable[Concatenate[Masks, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """``function(self, …)``, computed by the first call with these arguments, which are compared by value.

        Callers must not change the result in place.
        """
        if torch.compiler.is_compiling():  # exported models have lengths that are no numbers
            return function(self, *args, **kwargs)
        key = function, args, tuple(kwargs.items())
        if key in self._derived:
            return self._derived[key]
        result = for_later(function, self, *args, **kwargs)
        if keeps_tensors():
            self._derived[key] = result
        return result

    def settled(self) -> Masks:
        """Masks for compiled layers: all that these read is computed, in tensors of any size."""
        tokens = self.global_tokens
        masks = Masks(None if tokens is None else SlottedTokens(tokens), self.padding)
        for part in (masks, masks.without_globals, masks.without_global_queries):
            for name in (name for name, value in vars(Masks).items() if isinstance(value, lazy_property)):
                getattr(part, name)
        for tensor in (masks.padding, *(vars(masks.global_tokens).values() if tokens else ())):
            if tensor is not None:  # else equal sizes would be taken for one
                torch._dynamo.maybe_mark_dynamic(tensor, (0, 1))
        return masks

    @property
    def global_mask(self) -> Tensor | None:
        """(B, S) bool, True at global tokens."""
        return None if self.global_tokens is None else self.global_tokens.mask

    @lazy_property
    def without_globals(self) -> Masks:
        """The padding alone, for layers without global tokens."""
        return self if self.global_tokens is None else Masks(None, self.padding)

    @lazy_property
    def without_global_queries(self) -> Masks:
        """Masks whose global tokens act as keys only; their own rows are computed by a second call."""
        masks = Masks(self.global_tokens, self.padding)
        masks.global_queries = False
        return masks

    @lazy_property
    def global_keys(self) -> GlobalTokens | None:
        """The global tokens, padding or not; None where no row has one, if that may be looked at."""
        tokens = self.global_tokens
        return tokens if tokens is not None and (not tokens.known or tokens.num_slots) else None

    @lazy_property
    def hidden(self) -> Tensor | None:
        """(B, S) bool, True at keys that no window shows: padding, and global tokens, which are a lane of their own."""
        if self.global_keys is None:
            return self.padding
        mask = self.global_keys.mask  # a global token inside the window counts once
        return mask if self.padding is None else self.padding | mask

    @lazy_property
    def hidden_globals(self) -> Tensor | None:
        """(B, G) bool, True at slots of global keys without a token, or with padding."""
        return None if self.global_keys is None else self.global_keys.hidden(self.padding)
