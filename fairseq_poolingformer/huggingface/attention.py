"""Two-level attention in place of the self-attention of transformers' BART and RoBERTa."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init

from fairseq_poolingformer.attention import TwoLevelAttention
from fairseq_poolingformer.modules.attention_flags import AttentionFlags


def planes(padding_mask: Tensor | None, global_mask: Tensor) -> Tensor:
    """Pack the masks into one tensor, which transformers passes on to every layer.

    transformers expands a (B, T) mask to n × n, but passes on a mask with four dimensions as it is.

    Args:
        padding_mask: (B, T) bool, True at padding; None without any.
        global_mask: (B, T) bool, True at global tokens.

    Returns:
        (B, 1 or 2, 1, T) bool: the global tokens, and the padding where there is any.
    """
    masks = [global_mask] if padding_mask is None else [global_mask, padding_mask]
    return torch.stack(masks, dim=1).unsqueeze(2)


class BartSelfAttention(TwoLevelAttention):
    """Two-level attention in place of the encoder's ``BartAttention``; the parameters have the same names.

    Args:
        config: the model's.
        layer: 0-based.
    """

    def __init__(self, config: PreTrainedConfig, layer: int) -> None:
        arguments = AttentionFlags.of(config).arguments(layer, config.encoder_layers)
        super().__init__(config.d_model, config.encoder_attention_heads, dropout=config.attention_dropout, **arguments)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor, **unused: Any) -> tuple[Tensor, None]:
        """Return (B, T, C) from (B, T, C) and the masks of :func:`planes`."""
        return _attend(super().forward, hidden_states, attention_mask), None


class RobertaSelfAttention(TwoLevelAttention):
    """Two-level attention in place of ``RobertaSelfAttention``; the parameters have the same names.

    W_o is outside, in transformers' ``output.dense``.

    Args:
        config: the model's.
        layer: 0-based.
    """

    def __init__(self, config: PreTrainedConfig, layer: int) -> None:
        arguments = AttentionFlags.of(config).arguments(layer, config.num_hidden_layers)
        dropout = config.attention_probs_dropout_prob
        super().__init__(config.hidden_size, config.num_attention_heads, dropout=dropout, **arguments)
        for name, own in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
            self.add_module(name, self._modules.pop(own))
        self.out_proj = nn.Identity()

    q_proj = property(lambda self: self.query)
    k_proj = property(lambda self: self.key)
    v_proj = property(lambda self: self.value)

    def forward(
        self, hidden_states: Tensor, encoder_hidden_states: None = None, attention_mask: Tensor = None, **unused: Any
    ) -> tuple[Tensor, None]:
        """Return (B, T, C) from (B, T, C) and the masks of :func:`planes`."""
        return _attend(super().forward, hidden_states, attention_mask), None


def _attend(forward: Any, x: Tensor, masks: Tensor) -> Tensor:
    padding_mask = masks[:, 1, 0] if masks.size(1) == 2 else None
    return forward(x, global_mask=masks[:, 0, 0], key_padding_mask=padding_mask)


def initialize(module: nn.Module) -> None:
    """Initialize the dynamic weights of level two with N(0, 0.02²), unless a checkpoint gives them."""
    if isinstance(module, TwoLevelAttention) and module.pooled_k_pool_weight is not None:
        init.normal_(module.pooled_k_pool_weight, std=0.02)
        init.normal_(module.pooled_v_pool_weight, std=0.02)
