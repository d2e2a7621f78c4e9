"""Poolingformer-RoBERTa for transformers; XLM-R is the same model with its own tokenizer."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import (
    LongformerForMaskedLM,
    LongformerForQuestionAnswering,
    LongformerForSequenceClassification,
    LongformerForTokenClassification,
    LongformerModel,
    PreTrainedModel,
    RobertaForMaskedLM,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling, QuestionAnsweringModelOutput
from transformers.models.roberta.modeling_roberta import RobertaClassificationHead, RobertaLayer, RobertaLMHead
from transformers.utils import ModelOutput, can_return_tuple

from fairseq_poolingformer.huggingface.attention import RobertaSelfAttention
from fairseq_poolingformer.huggingface.base import TwoLevelModel, share_of_mean
from fairseq_poolingformer.huggingface.configuration import PoolingformerRobertaConfig
from fairseq_poolingformer.huggingface.packaged import Packaged
from fairseq_poolingformer.huggingface.padding import Rows, checked_input, encode
from fairseq_poolingformer.levels import at_random_offsets, check_offsets, relative_tables
from fairseq_poolingformer.settings import TwoLevels
from fairseq_poolingformer.weights.loading import OFFSET


class _Roberta(Packaged, TwoLevelModel):
    """What every model in this module has before transformers' own class."""

    config_class = PoolingformerRobertaConfig


def _short_classes(roberta: type[PreTrainedModel], longformer: type[PreTrainedModel]) -> dict[str, type]:
    """Return the classes of short models; those of XLM-R have the same parameters as RoBERTa's."""
    return {"roberta": roberta, "xlm-roberta": roberta, "longformer": longformer}


class NoPositions(nn.Module):
    """In place of the table of absolute positions in models that have relative ones alone."""

    def forward(self, position_ids: Tensor) -> float:
        """Return 0, which transformers adds to the embeddings."""
        return 0.0


class PoolingformerRobertaModel(_Roberta, RobertaModel):
    """RoBERTa's encoder with two-level attention, and with DeBERTa's relative positions where they are asked for.

    Raises:
        ValueError: the configuration has neither absolute nor relative positions, or asks for a decoder.
    """

    short_classes = _short_classes(RobertaModel, LongformerModel)
    _can_record_outputs: ClassVar = {"hidden_states": RobertaLayer, "attentions": RobertaSelfAttention}

    def __init__(self, config: PoolingformerRobertaConfig, add_pooling_layer: bool = True) -> None:
        if config.is_decoder or config.add_cross_attention:
            raise ValueError(
                "is_decoder and add_cross_attention ask for a decoder, but here every token sees both sides: leave "
                "them out"
            )
        super().__init__(config, add_pooling_layer=add_pooling_layer)
        self.max_tokens = config.max_position_embeddings - OFFSET
        for number, layer in enumerate(self.encoder.layer):
            layer.attention.self = RobertaSelfAttention(config, number, self.max_tokens)
        tables = relative_tables(TwoLevels.of(config), config.hidden_size, self.max_tokens)
        self.encoder.relative_positions, self.encoder.global_relative_positions = tables
        if not config.absolute_positions:
            if tables[0] is None:
                raise ValueError(
                    "absolute_positions=False without relative_attention leaves the model without any positions: set "
                    'relative_attention="c2p,p2c", or absolute_positions=True'
                )
            check_offsets(TwoLevels.of(config))
            self.embeddings.position_embeddings = NoPositions()
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
        inputs = {"input_ids": input_ids, "inputs_embeds": inputs_embeds}
        kwargs = self.with_defaults(kwargs)
        return encode(
            self._encode,
            {**inputs, "token_type_ids": token_type_ids, "position_ids": position_ids},
            attention_mask,
            global_attention_mask,
            longest=self.max_tokens,
            global_tokens=self.config.global_tokens,
            **self._relative_tables(),
            **kwargs,
        )

    def _encode(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        position_ids: Tensor | None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """RoBERTa's forward pass of rows whose tokens come first; they may begin at random positions in training."""
        if self.config.random_position_offsets and self.training and position_ids is None:
            padding_idx = self.embeddings.padding_idx
            if input_ids is not None:
                is_token = input_ids.ne(padding_idx)
            else:
                is_token = inputs_embeds.new_ones(inputs_embeds.shape[:2], dtype=torch.bool)
            position_ids = is_token.cumsum(1) * is_token + padding_idx
            position_ids = at_random_offsets(position_ids, is_token, self.config.max_position_embeddings - 1)
        return super().forward(input_ids, inputs_embeds=inputs_embeds, position_ids=position_ids, **kwargs)

    def _relative_tables(self) -> dict[str, Tensor]:
        """Return the tables of relative positions by the names that every layer's attention takes."""
        tables = ("relative_positions", "global_relative_positions")
        found = {name: getattr(self.encoder, name) for name in tables}
        return {name: table.weight for name, table in found.items() if table is not None}


class WithHead(_Roberta):
    """A head on :class:`PoolingformerRobertaModel`.

    Attributes:
        head_name: the attribute that transformers' class keeps the head in.
        reads_first_token: the head reads the first token, so that left padding moves to the right before it.
    """

    head_name: ClassVar[str]
    reads_first_token: ClassVar = False

    def __init__(self, config: PoolingformerRobertaConfig) -> None:
        PreTrainedModel.__init__(self, config)  # transformers' own class would build a RoBERTa first
        self.num_labels = config.num_labels
        self.roberta = PoolingformerRobertaModel(config, add_pooling_layer=False)
        self.add_module(self.head_name, self._head(config))
        self.post_init()

    @staticmethod
    def _head(config: PoolingformerRobertaConfig) -> nn.Module:
        raise NotImplementedError

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Compute the forward pass of transformers' class. Trainer passes on only the inputs that the signature names.

        Args:
            labels: as transformers' class has them.
            num_items_in_batch: as :func:`share_of_mean`'s.
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, global_attention_mask, kwargs: as
                :meth:`PoolingformerRobertaModel.forward` has them.
        """
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
            "global_attention_mask": global_attention_mask,
        }
        if self.reads_first_token:
            checked_input(input_ids, inputs_embeds, attention_mask, global_attention_mask)
            rows = Rows.of(attention_mask)
            inputs = {name: rows.moved(x) for name, x in inputs.items()}
        output = super().forward(**inputs, labels=labels, **{**kwargs, "return_dict": True})
        output.loss = share_of_mean(output.loss, labels, num_items_in_batch)
        return output


class PoolingformerRobertaForMaskedLM(WithHead, RobertaForMaskedLM):
    """Poolingformer-RoBERTa with its head for masked language modelling."""

    short_classes = _short_classes(RobertaForMaskedLM, LongformerForMaskedLM)
    head_name = "lm_head"

    @staticmethod
    def _head(config: PoolingformerRobertaConfig) -> nn.Module:
        return RobertaLMHead(config)


class PoolingformerRobertaForSequenceClassification(WithHead, RobertaForSequenceClassification):
    """Poolingformer-RoBERTa with transformers' head for classes, which looks at the first token."""

    short_classes = _short_classes(RobertaForSequenceClassification, LongformerForSequenceClassification)
    head_name, reads_first_token = "classifier", True

    @staticmethod
    def _head(config: PoolingformerRobertaConfig) -> nn.Module:
        return RobertaClassificationHead(config)


class PoolingformerRobertaForTokenClassification(WithHead, RobertaForTokenClassification):
    """Poolingformer-RoBERTa with transformers' head for a class of each token."""

    short_classes = _short_classes(RobertaForTokenClassification, LongformerForTokenClassification)
    head_name = "classifier"

    def __init__(self, config: PoolingformerRobertaConfig) -> None:
        super().__init__(config)
        rate = config.classifier_dropout
        self.dropout = nn.Dropout(config.hidden_dropout_prob if rate is None else rate)

    @staticmethod
    def _head(config: PoolingformerRobertaConfig) -> nn.Module:
        return nn.Linear(config.hidden_size, config.num_labels)


class PoolingformerRobertaForQuestionAnswering(WithHead, RobertaForQuestionAnswering):
    """Poolingformer-RoBERTa with transformers' head for spans."""

    short_classes = _short_classes(RobertaForQuestionAnswering, LongformerForQuestionAnswering)
    head_name = "qa_outputs"

    @staticmethod
    def _head(config: PoolingformerRobertaConfig) -> nn.Module:
        return nn.Linear(config.hidden_size, config.num_labels)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Compute RoBERTa's forward pass, whose labels are ``start_positions`` and ``end_positions``."""
        return RobertaForQuestionAnswering.forward(
            self,
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            start_positions,
            end_positions,
            global_attention_mask=global_attention_mask,
            **kwargs,
        )
