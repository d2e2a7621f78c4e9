"""Two-level attention in place of the self-attention of transformers' encoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_exporting
from transformers import PreTrainedConfig
from transformers import initialization as init
from transformers.utils import logging

from fairseq_poolingformer.attention import LevelWeights, Masks, TwoLevelAttention
from fairseq_poolingformer.attention.global_tokens import FirstTokens
from fairseq_poolingformer.levels import attention_arguments
from fairseq_poolingformer.settings import TwoLevels

logger = logging.get_logger(__name__)

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
BERT_NAMES = ("query", "key", "value", "")


def packed_masks(padding_mask: Tensor | None, global_mask: Tensor) -> Tensor:
    """Pack masks, (B, T) bool, into (B, 1 or 2, 1, T): global tokens, and padding where there is any."""
    # 4-D masks pass through transformers unexpanded; ``packed.masks`` carries the Masks that layers share
    masks = [global_mask] if padding_mask is None else [global_mask, padding_mask]
    packed = torch.stack(masks, dim=1).unsqueeze(2)
    if not torch.compiler.is_compiling():
        packed.masks = Masks(global_mask, padding_mask)
    return packed


class EncoderSelfAttention(TwoLevelAttention):
    """Two-level attention that transformers' layers call as their own self-attention."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        global_tokens: int,
        relative: nn.Module | None = None,
        names: tuple[str, str, str, str] = PROJECTIONS,
        **arguments: Any,
    ) -> None:
        scale: dict[str, Any] = {} if relative is None else {"scale": relative.scale}
        super().__init__(embed_dim, num_heads, **scale, **arguments)
        self.global_tokens, self.relative_projections = global_tokens, relative
        self.names = tuple(name or own for name, own in zip(names, PROJECTIONS, strict=True))
        for name, own in zip(self.names, PROJECTIONS, strict=True):
            if name != own:
                self.add_module(name, self._modules.pop(own))
        if not names[3]:
            self.out_proj = nn.Identity()

    q_proj = property(lambda self: self._modules[self.names[0]])
    k_proj = property(lambda self: self._modules[self.names[1]])
    v_proj = property(lambda self: self._modules[self.names[2]])
    out_proj = property(lambda self: self._modules[self.names[3]])

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor, output_attentions: bool = False, **kwargs: Any
    ) -> tuple[Tensor, LevelWeights | None]:
        """Attend to (B, T, C) with :func:`packed_masks`'s masks; ``kwargs`` may have P (2k, C) and P_g (2k_g, C)."""
        if self.training and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self._warn_of_untrained_values()
        arguments = self._arguments(attention_mask, **kwargs)
        attended = super().forward(hidden_states, **arguments)
        return attended, super().weights(hidden_states, **arguments) if output_attentions else None

    def weights(self, hidden_states: Tensor, attention_mask: Tensor, **kwargs: Any) -> LevelWeights:
        """Return both levels' weights in banded form; arguments as :meth:`forward`'s."""
        return super().weights(hidden_states, **self._arguments(attention_mask, **kwargs))

    def _warn_of_untrained_values(self) -> None:
        """Warn in training of a frozen level two with initial projections, or of frozen pool weights, as under LoRA."""
        bias = getattr(self.pooled_q_proj, "bias", None)  # zero at first; ModernBERT has none
        if bias is not None and not self._trains("pooled_") and not bias.any():  # which waits for a GPU
            logger.warning_once(
                "level two keeps its random values, since none of its parameters is trained: name pooled_q_proj, "
                "pooled_k_proj and pooled_v_proj in target_modules, or make the model with "
                'pooled_init="copy-zero-values"'
            )
        weight = self.pooled_k_pool_weight
        if weight is not None and not weight.requires_grad and self._trains(""):
            logger.warning_once(
                "the pool weights stay as they are, in a new model close to means, since they are not trained: name "
                "pooled_k_pool_weight and pooled_v_pool_weight in LoRA's target_parameters"
            )

    def _trains(self, prefix: str) -> bool:
        return any(p.requires_grad for name, p in self.named_parameters() if name.startswith(prefix))

    def _arguments(
        self,
        masks: Tensor,
        relative_positions: Tensor | None = None,
        global_relative_positions: Tensor | None = None,
        **unused: Any,
    ) -> dict[str, Any]:
        """Return the arguments of :class:`TwoLevelAttention`'s methods."""
        terms: tuple[Any, ...] = ()
        if self.relative_projections is not None:
            terms = (self.relative_projections(relative_positions, global_relative_positions),)
        return {"masks": self._masks(masks), "score_terms": terms}

    def _masks(self, packed: Tensor) -> Masks:
        """The :class:`Masks` of :func:`packed_masks`."""
        masks: Masks | None = getattr(packed, "masks", None)
        if masks is None:  # of a compiled graph, or copied
            first = FirstTokens(packed[:, 0, 0], self.global_tokens) if self.global_tokens and is_exporting() else None
            masks = Masks(packed[:, 0, 0] if first is None else first, packed[:, 1, 0] if packed.size(1) == 2 else None)
        if not self.global_tokens and (is_exporting() or masks.global_keys is None):
            return masks.without_globals  # such a model may have no relative positions for them
        return masks


@dataclass(frozen=True)
class AttentionLayout:
    """Where an encoder of transformers' has its self-attention, and what it calls the parts."""

    layers: str  # the path of the list of layers
    attention: str  # the path of the self-attention in a layer
    names: tuple[str, str, str, str]  # of W_q, W_k, W_v and W_o there; "" for a W_o that is outside of it
    dropout: str  # the setting that says how probably an attention weight is dropped
    after_padding: bool = False  # whether positions begin behind padding's, which is its id
    attention_class: type[EncoderSelfAttention] = EncoderSelfAttention

    def first_position(self, config: PreTrainedConfig) -> int:
        """The first token's position in a model of this configuration."""
        return config.pad_token_id + 1 if self.after_padding else 0

    def install(self, encoder: Any, parts: Callable[[int], dict[str, Any]] = lambda layer: {}) -> None:
        """Put two-level attention in the place of the self-attention; the parameters have the same names."""
        config, settings = encoder.config, TwoLevels.of(encoder.config)
        parent, _, name = self.attention.rpartition(".")
        for number, layer in enumerate(encoder.get_submodule(self.layers)):
            attention = self.attention_class(
                config.hidden_size,
                config.num_attention_heads,
                **parts(number),
                dropout=getattr(config, self.dropout),
                global_tokens=config.global_tokens,
                names=self.names,
                **attention_arguments(settings, number, config.num_hidden_layers, config.num_attention_heads),
            )
            setattr(layer.get_submodule(parent), name, attention)


def initialize(module: nn.Module) -> None:
    """Initialize what transformers does not know, unless a checkpoint gives it: W_p of level two with N(0, 0.02²)."""
    if isinstance(module, TwoLevelAttention) and module.pooled_k_pool_weight is not None:
        init.normal_(module.pooled_k_pool_weight, std=0.02)
        init.normal_(module.pooled_v_pool_weight, std=0.02)
