"""Poolingformer-RoBERTa for transformers; XLM-R and CamemBERT are the same model with their own tokenizers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    RobertaForMaskedLM,
    RobertaForMultipleChoice,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
)
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling

from fairseq_poolingformer.attention.relative_projections import CoarsePositions
from fairseq_poolingformer.huggingface.attention import BERT_NAMES, Layout
from fairseq_poolingformer.huggingface.base import TwoLevelModel
from fairseq_poolingformer.huggingface.configuration import PoolingformerRobertaConfig
from fairseq_poolingformer.huggingface.encoders import ChoiceHead, LabelHead, SpanHead, TextEncoder
from fairseq_poolingformer.huggingface.packaged import Packaged
from fairseq_poolingformer.levels import check_offsets, relative_projections, relative_tables
from fairseq_poolingformer.settings import TwoLevels
from fairseq_poolingformer.weights.loading import OFFSET


class _Roberta(Packaged, TwoLevelModel):
    """What every model in this module has before transformers' own class."""

    config_class = PoolingformerRobertaConfig


class NoPositions(nn.Module):
    """In place of the table of absolute positions in models that have relative ones alone."""

    def forward(self, position_ids: Tensor) -> float:
        """Return 0, which transformers adds to the embeddings."""
        return 0.0


class PoolingformerRobertaModel(_Roberta, TextEncoder, RobertaModel):
    """RoBERTa's encoder with two-level attention, and with DeBERTa's relative positions where they are asked for.

    Raises:
        ValueError: the configuration has neither absolute nor relative positions, or asks for a decoder.
    """

    layout = Layout("encoder.layer", "attention.self", BERT_NAMES, "attention_probs_dropout_prob", OFFSET)

    def _install(self, config: PoolingformerRobertaConfig) -> None:
        settings, sizes = TwoLevels.of(config), (config.hidden_size, config.num_attention_heads)
        rest = (config.num_hidden_layers, *sizes, config.hidden_dropout_prob, self.max_tokens)
        self.layout.install(self, lambda layer: {"relative": relative_projections(settings, layer, *rest)})
        tables = relative_tables(settings, config.hidden_size, self.max_tokens)
        self.encoder.relative_positions, self.encoder.global_relative_positions = tables
        if not config.absolute_positions:
            if tables[0] is None:
                raise ValueError(
                    "absolute_positions=False without relative_attention leaves the model without any positions: set "
                    'relative_attention="c2p,p2c", or absolute_positions=True'
                )
            check_offsets(settings)
            self.embeddings.position_embeddings = NoPositions()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, CoarsePositions):
            init.constant_(module.tokens_per_row, module.row_length)

    def _encode(self, *args: Any, **kwargs: Any) -> BaseModelOutputWithPooling:
        """Give every layer's attention the tables of relative positions by the names that it takes."""
        found = {name: getattr(self.encoder, name) for name in ("relative_positions", "global_relative_positions")}
        tables = {name: table.weight for name, table in found.items() if table is not None}
        return super()._encode(*args, **tables, **kwargs)


class _RobertaHead(_Roberta):
    base_class = PoolingformerRobertaModel


class PoolingformerRobertaForMaskedLM(_RobertaHead, LabelHead, RobertaForMaskedLM):
    """Poolingformer-RoBERTa with its head for masked language modelling."""


class PoolingformerRobertaForSequenceClassification(_RobertaHead, LabelHead, RobertaForSequenceClassification):
    """Poolingformer-RoBERTa with transformers' head for classes, which looks at the first token."""

    reads_first_token = True


class PoolingformerRobertaForTokenClassification(_RobertaHead, LabelHead, RobertaForTokenClassification):
    """Poolingformer-RoBERTa with transformers' head for a class of each token."""


class PoolingformerRobertaForQuestionAnswering(_RobertaHead, SpanHead, RobertaForQuestionAnswering):
    """Poolingformer-RoBERTa with transformers' head for spans."""


class PoolingformerRobertaForMultipleChoice(_RobertaHead, ChoiceHead, RobertaForMultipleChoice):
    """Poolingformer-RoBERTa with transformers' head for one of several texts."""
