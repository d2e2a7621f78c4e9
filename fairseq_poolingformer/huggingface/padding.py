"""Padding on either side: move each row's real tokens to the front, and move the results back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_exporting
from transformers.modeling_outputs import BaseModelOutput

from fairseq_poolingformer.huggingface.attention import packed_masks


@dataclass(frozen=True)
class Rows:
    """The rows of a batch, their real tokens first."""

    order: Tensor | None  # (B, T) the column that each column is taken from; None where the tokens come first already
    padding_mask: Tensor | None  # (B, T) bool, True at padding after the move; None without any

    @classmethod
    def of(cls, attention_mask: Tensor | None) -> Rows:
        """Make the rows of a mask, (B, T), 1 at real tokens; None for a batch without padding."""
        # while a model is exported, padding is taken to be on the right: the graph cannot look
        if attention_mask is None:
            return cls(None, None)
        real = attention_mask.bool()
        if is_exporting():
            return cls(None, ~real)
        if real.all():
            return cls(None, None)
        if (real[:, :-1] | ~real[:, 1:]).all():
            return cls(None, ~real)
        order = (~real).byte().argsort(dim=1, stable=True)
        return cls(order, ~real.gather(1, order))

    def moved(self, x: Tensor | None) -> Tensor | None:
        """Return (B, T) or (B, T, C) with the real tokens first."""
        return x if x is None or self.order is None else _take(x, self.order)

    def back(self, x: Tensor | None) -> Tensor | None:
        """Undo :meth:`moved`."""
        return x if x is None or self.order is None else _take(x, self.order.argsort(dim=1))

    def masks(self, like: Tensor, global_attention_mask: Tensor | None, global_tokens: int) -> Tensor:
        """Return :func:`~.attention.packed_masks`; without ``global_attention_mask`` the first tokens are global."""
        if global_attention_mask is None:
            first = torch.arange(like.size(1), device=like.device) < global_tokens
            global_mask = first.expand(like.size(0), -1)
        else:
            global_mask = self.moved(global_attention_mask.bool())
        if self.padding_mask is not None:
            global_mask = global_mask & ~self.padding_mask
        return packed_masks(self.padding_mask, global_mask)


def checked_input(
    input_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    attention_mask: Tensor | None,
    global_attention_mask: Tensor | None,
) -> Tensor:
    """Return the one of the two inputs that is given, (B, T) or (B, T, C)."""
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("give either input_ids or inputs_embeds, exactly one of the two")
    name, inputs, dims = ("input_ids", input_ids, 2) if inputs_embeds is None else ("inputs_embeds", inputs_embeds, 3)
    if inputs.dim() != dims:
        shape = ["(batch, tokens)", "(batch, tokens, width)"][dims - 2]
        raise ValueError(f"{name} must be {shape}, got {tuple(inputs.shape)}; a single text is a batch of one")
    if not inputs.size(1):
        raise ValueError(f"{name} has no tokens, its shape is {tuple(inputs.shape)}: give each text at least <s>")
    for name, mask in (("attention_mask", attention_mask), ("global_attention_mask", global_attention_mask)):
        if mask is not None and mask.shape != inputs.shape[:2]:
            raise ValueError(
                f"{name} must have a number for each token, {tuple(inputs.shape[:2])}, got {tuple(mask.shape)}"
            )
    return inputs


def encode(
    run: Callable[..., BaseModelOutput],
    inputs: dict[str, Tensor | None],
    attention_mask: Tensor | None,
    global_attention_mask: Tensor | None,
    *,
    longest: int,
    global_tokens: int,
    **kwargs: Any,
) -> BaseModelOutput:
    """Run an encoder of transformers' with each row's real tokens first, and move its outputs back."""
    batch = checked_input(inputs["input_ids"], inputs["inputs_embeds"], attention_mask, global_attention_mask)
    if batch.size(1) > longest:
        raise ValueError(
            f"input of {batch.size(1)} tokens, the model takes {longest} (max_position_embeddings): truncate it, as a "
            f"tokenizer with model_max_length={longest} does, or make a longer model with from_short"
        )
    if is_exporting() and global_attention_mask is not None:
        raise ValueError(
            "global_attention_mask cannot be an input of an exported model, whose graph has a fixed number of global "
            "tokens: leave it out, and the first global_tokens ones are global"
        )
    rows = Rows.of(attention_mask)
    masks = rows.masks(batch, global_attention_mask, global_tokens)
    moved = {name: rows.moved(x) for name, x in inputs.items()}
    encoded = run(**moved, attention_mask=masks, **{**kwargs, "return_dict": True})
    encoded.last_hidden_state = rows.back(encoded.last_hidden_state)
    if encoded.hidden_states is not None:
        encoded.hidden_states = tuple(map(rows.back, encoded.hidden_states))
    return encoded


def _take(x: Tensor, order: Tensor) -> Tensor:
    x = x.expand(order.size(0), *x.shape[1:])  # position_ids may be one row for all
    return x.gather(1, order if x.dim() == 2 else order.unsqueeze(-1).expand_as(x))
