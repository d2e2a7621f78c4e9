"""Poolingformers of BERT's kin for transformers: a layout and transformers' own classes make a family."""

from __future__ import annotations

from transformers import (
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    DistilBertForMaskedLM,
    DistilBertForMultipleChoice,
    DistilBertForQuestionAnswering,
    DistilBertForSequenceClassification,
    DistilBertForTokenClassification,
    DistilBertModel,
    ElectraForMaskedLM,
    ElectraForMultipleChoice,
    ElectraForQuestionAnswering,
    ElectraForSequenceClassification,
    ElectraForTokenClassification,
    ElectraModel,
)

from fairseq_poolingformer.huggingface.attention import BERT_NAMES, Layout
from fairseq_poolingformer.huggingface.base import TwoLevelModel
from fairseq_poolingformer.huggingface.configuration import (
    PoolingformerBertConfig,
    PoolingformerDistilBertConfig,
    PoolingformerElectraConfig,
)
from fairseq_poolingformer.huggingface.encoders import ChoiceHead, LabelHead, SpanHead, TextEncoder
from fairseq_poolingformer.huggingface.packaged import Packaged


class _Bert(Packaged, TwoLevelModel):
    config_class = PoolingformerBertConfig


class PoolingformerBertModel(_Bert, TextEncoder, BertModel):
    """BERT's encoder with two-level attention."""

    layout = Layout("encoder.layer", "attention.self", BERT_NAMES, "attention_probs_dropout_prob")


class _BertHead(_Bert):
    base_class = PoolingformerBertModel


class PoolingformerBertForMaskedLM(_BertHead, LabelHead, BertForMaskedLM):
    """Poolingformer-BERT that fills in masked tokens."""


class PoolingformerBertForSequenceClassification(_BertHead, LabelHead, BertForSequenceClassification):
    """Poolingformer-BERT that gives a class to a text."""


class PoolingformerBertForTokenClassification(_BertHead, LabelHead, BertForTokenClassification):
    """Poolingformer-BERT that gives a class to each token."""


class PoolingformerBertForQuestionAnswering(_BertHead, SpanHead, BertForQuestionAnswering):
    """Poolingformer-BERT that finds spans."""


class PoolingformerBertForMultipleChoice(_BertHead, ChoiceHead, BertForMultipleChoice):
    """Poolingformer-BERT that chooses one of several texts."""


class _Electra(Packaged, TwoLevelModel):
    config_class = PoolingformerElectraConfig


class PoolingformerElectraModel(_Electra, TextEncoder, ElectraModel):
    """ELECTRA's encoder with two-level attention."""

    layout = Layout("encoder.layer", "attention.self", BERT_NAMES, "attention_probs_dropout_prob")


class _ElectraHead(_Electra):
    base_class = PoolingformerElectraModel


class PoolingformerElectraForMaskedLM(_ElectraHead, LabelHead, ElectraForMaskedLM):
    """Poolingformer-ELECTRA that fills in masked tokens."""


class PoolingformerElectraForSequenceClassification(_ElectraHead, LabelHead, ElectraForSequenceClassification):
    """Poolingformer-ELECTRA that gives a class to a text."""

    reads_first_token = True


class PoolingformerElectraForTokenClassification(_ElectraHead, LabelHead, ElectraForTokenClassification):
    """Poolingformer-ELECTRA that gives a class to each token."""


class PoolingformerElectraForQuestionAnswering(_ElectraHead, SpanHead, ElectraForQuestionAnswering):
    """Poolingformer-ELECTRA that finds spans."""


class PoolingformerElectraForMultipleChoice(_ElectraHead, ChoiceHead, ElectraForMultipleChoice):
    """Poolingformer-ELECTRA that chooses one of several texts."""

    reads_first_token = True


class _DistilBert(Packaged, TwoLevelModel):
    config_class = PoolingformerDistilBertConfig


class PoolingformerDistilBertModel(_DistilBert, TextEncoder, DistilBertModel):
    """DistilBERT's encoder with two-level attention."""

    layout = Layout("transformer.layer", "attention", ("q_lin", "k_lin", "v_lin", "out_lin"), "attention_dropout")


class _DistilBertHead(_DistilBert):
    base_class = PoolingformerDistilBertModel


class PoolingformerDistilBertForMaskedLM(_DistilBertHead, LabelHead, DistilBertForMaskedLM):
    """Poolingformer-DistilBERT that fills in masked tokens."""


class PoolingformerDistilBertForSequenceClassification(_DistilBertHead, LabelHead, DistilBertForSequenceClassification):
    """Poolingformer-DistilBERT that gives a class to a text."""

    reads_first_token = True


class PoolingformerDistilBertForTokenClassification(_DistilBertHead, LabelHead, DistilBertForTokenClassification):
    """Poolingformer-DistilBERT that gives a class to each token."""


class PoolingformerDistilBertForQuestionAnswering(_DistilBertHead, SpanHead, DistilBertForQuestionAnswering):
    """Poolingformer-DistilBERT that finds spans."""


class PoolingformerDistilBertForMultipleChoice(_DistilBertHead, ChoiceHead, DistilBertForMultipleChoice):
    """Poolingformer-DistilBERT that chooses one of several texts."""

    reads_first_token = True
