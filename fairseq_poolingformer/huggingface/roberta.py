"""Poolingformer-RoBERTa for transformers; XLM-R is the same model with its own tokenizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    RobertaForMaskedLM,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaModel,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling, SequenceClassifierOutput
from transformers.utils import can_return_tuple

from fairseq_poolingformer.huggingface.attention import RobertaSelfAttention, initialize
from fairseq_poolingformer.huggingface.configuration import PoolingformerRobertaConfig
from fairseq_poolingformer.huggingface.padding import Rows
from fairseq_poolingformer.huggingface.short_models import FromShort

OFFSET = 2  # rows of the position table before position 0


class _Initialized:
    """The configuration and initialization of every model in this module."""

    config_class = PoolingformerRobertaConfig

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        initialize(module)


class PoolingformerRobertaModel(FromShort, _Initialized, RobertaModel):
    """RoBERTa's encoder with two-level attention."""

    short_class = RobertaModel

    def __init__(self, config: PoolingformerRobertaConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config, add_pooling_layer=add_pooling_layer)
        for number, layer in enumerate(self.encoder.layer):
            layer.attention.self = RobertaSelfAttention(config, number)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Compute RoBERTa's forward pass.

        Args:
            input_ids: (B, T).
            attention_mask: (B, T), 1 at real tokens, padding on either side; None without padding.
            token_type_ids, position_ids: (B, T), as RoBERTa's.
            inputs_embeds: (B, T, C) in place of ``input_ids``.
            global_attention_mask: (B, T), 1 at global tokens; None for the first ``config.global_tokens`` ones.
            kwargs: as RoBERTa's.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds, exactly one of the two")
        given = input_ids if inputs_embeds is None else inputs_embeds
        longest = self.config.max_position_embeddings - OFFSET
        if given.size(1) > longest:
            raise ValueError(
                f"input of {given.size(1)} tokens, the model takes {longest} (max_position_embeddings − {OFFSET}): "
                "truncate it, or make a longer model with from_short"
            )
        rows = Rows.of(attention_mask)
        kwargs["return_dict"] = True
        encoded = super().forward(
            input_ids=rows.moved(input_ids),
            attention_mask=rows.masks(given, global_attention_mask, self.config.global_tokens),
            token_type_ids=rows.moved(token_type_ids),
            position_ids=rows.moved(position_ids),
            inputs_embeds=rows.moved(inputs_embeds),
            **kwargs,
        )
        encoded.last_hidden_state = rows.back(encoded.last_hidden_state)
        if encoded.hidden_states is not None:
            encoded.hidden_states = tuple(map(rows.back, encoded.hidden_states))
        return encoded


class PoolingformerRobertaForMaskedLM(FromShort, _Initialized, RobertaForMaskedLM):
    """Poolingformer-RoBERTa with its head for masked language modelling."""

    short_class = RobertaForMaskedLM

    def __init__(self, config: PoolingformerRobertaConfig) -> None:
        super().__init__(config)
        self.roberta = PoolingformerRobertaModel(config, add_pooling_layer=False)
        self.post_init()


class PoolingformerRobertaForQuestionAnswering(FromShort, _Initialized, RobertaForQuestionAnswering):
    """Poolingformer-RoBERTa with transformers' head for spans."""

    short_class = RobertaForQuestionAnswering

    def __init__(self, config: PoolingformerRobertaConfig) -> None:
        super().__init__(config)
        self.roberta = PoolingformerRobertaModel(config, add_pooling_layer=False)
        self.post_init()


class PoolingformerRobertaForSequenceClassification(FromShort, _Initialized, RobertaForSequenceClassification):
    """Poolingformer-RoBERTa with transformers' head for classes, which looks at the first token."""

    short_class = RobertaForSequenceClassification

    def __init__(self, config: PoolingformerRobertaConfig) -> None:
        super().__init__(config)
        self.roberta = PoolingformerRobertaModel(config, add_pooling_layer=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Compute RoBERTa's forward pass; left padding moves to the right, so that the head finds the first token."""
        rows = Rows.of(attention_mask)
        kwargs["return_dict"] = True
        return super().forward(
            rows.moved(input_ids),
            rows.moved(attention_mask),
            rows.moved(token_type_ids),
            rows.moved(position_ids),
            rows.moved(inputs_embeds),
            global_attention_mask=rows.moved(global_attention_mask),
            **kwargs,
        )
