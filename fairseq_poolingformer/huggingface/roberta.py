"""Poolingformer-RoBERTa for transformers; XLM-R is the same model with its own tokenizer."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn
from transformers import (
    LongformerForMaskedLM,
    LongformerForQuestionAnswering,
    LongformerForSequenceClassification,
    LongformerModel,
    PreTrainedModel,
    RobertaForMaskedLM,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaModel,
)
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
)
from transformers.models.roberta.modeling_roberta import RobertaClassificationHead, RobertaLayer, RobertaLMHead
from transformers.utils import can_return_tuple

from fairseq_poolingformer.huggingface.attention import RobertaSelfAttention
from fairseq_poolingformer.huggingface.base import TwoLevelModel, share_of_mean
from fairseq_poolingformer.huggingface.configuration import PoolingformerRobertaConfig
from fairseq_poolingformer.huggingface.padding import Rows, checked_input, encode
from fairseq_poolingformer.huggingface.short_models import FromShort
from fairseq_poolingformer.models.attention_flags import AttentionFlags
from fairseq_poolingformer.weights.loading import OFFSET


class _Roberta(FromShort, TwoLevelModel):
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
        flags, self.max_tokens = AttentionFlags.of(config), config.max_position_embeddings - OFFSET
        for number, layer in enumerate(self.encoder.layer):
            layer.attention.self = RobertaSelfAttention(config, number, self.max_tokens)
        tables = flags.build_tables(config.hidden_size, self.max_tokens)
        self.encoder.relative_positions, self.encoder.global_relative_positions = tables
        if not config.absolute_positions:
            if tables[0] is None:
                raise ValueError(
                    "absolute_positions=False without relative_attention leaves the model without any positions: set "
                    'relative_attention="c2p,p2c", or absolute_positions=True'
                )
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
            super().forward,
            {**inputs, "token_type_ids": token_type_ids, "position_ids": position_ids},
            attention_mask,
            global_attention_mask,
            longest=self.max_tokens,
            global_tokens=self.config.global_tokens,
            **self._relative_tables(),
            **kwargs,
        )

    def _relative_tables(self) -> dict[str, Tensor]:
        """Return the tables of relative positions by the names that every layer's attention takes."""
        tables = ("relative_positions", "global_relative_positions")
        found = {name: getattr(self.encoder, name) for name in tables}
        return {name: table.weight for name, table in found.items() if table is not None}


class _WithHead(_Roberta):
    """A head of transformers on :class:`PoolingformerRobertaModel`.

    Attributes:
        head_name: the attribute that transformers' class keeps the head in.
    """

    head_name: str

    def __init__(self, config: PoolingformerRobertaConfig) -> None:
        PreTrainedModel.__init__(self, config)  # transformers' own class would build a RoBERTa first
        self.num_labels = config.num_labels
        self.roberta = PoolingformerRobertaModel(config, add_pooling_layer=False)
        self.add_module(self.head_name, self._head(config))
        self.post_init()

    @staticmethod
    def _head(config: PoolingformerRobertaConfig) -> nn.Module:
        raise NotImplementedError


class PoolingformerRobertaForMaskedLM(_WithHead, RobertaForMaskedLM):
    """Poolingformer-RoBERTa with its head for masked language modelling."""

    short_classes = _short_classes(RobertaForMaskedLM, LongformerForMaskedLM)
    head_name = "lm_head"

    @staticmethod
    def _head(config: PoolingformerRobertaConfig) -> nn.Module:
        return RobertaLMHead(config)

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
    ) -> MaskedLMOutput:
        """Compute RoBERTa's forward pass. Trainer passes on only the inputs that the signature names."""
        kwargs["return_dict"] = True
        output = super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            labels=labels,
            global_attention_mask=global_attention_mask,
            **kwargs,
        )
        output.loss = share_of_mean(output.loss, labels, num_items_in_batch)
        return output


class PoolingformerRobertaForQuestionAnswering(_WithHead, RobertaForQuestionAnswering):
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
        """Compute RoBERTa's forward pass. Trainer passes on only the inputs that the signature names."""
        return super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            start_positions=start_positions,
            end_positions=end_positions,
            global_attention_mask=global_attention_mask,
            **kwargs,
        )


class PoolingformerRobertaForSequenceClassification(_WithHead, RobertaForSequenceClassification):
    """Poolingformer-RoBERTa with transformers' head for classes, which looks at the first token."""

    short_classes = _short_classes(RobertaForSequenceClassification, LongformerForSequenceClassification)
    head_name = "classifier"

    @staticmethod
    def _head(config: PoolingformerRobertaConfig) -> nn.Module:
        return RobertaClassificationHead(config)

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
    ) -> SequenceClassifierOutput:
        """Compute RoBERTa's forward pass; left padding moves to the right, so that the head finds the first token."""
        checked_input(input_ids, inputs_embeds, attention_mask, global_attention_mask)
        rows = Rows.of(attention_mask)
        kwargs["return_dict"] = True
        output = super().forward(
            rows.moved(input_ids),
            rows.moved(attention_mask),
            rows.moved(token_type_ids),
            rows.moved(position_ids),
            rows.moved(inputs_embeds),
            labels=labels,
            global_attention_mask=rows.moved(global_attention_mask),
            **kwargs,
        )
        output.loss = share_of_mean(output.loss, labels, num_items_in_batch)
        return output
