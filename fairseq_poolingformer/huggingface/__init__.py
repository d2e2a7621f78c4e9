"""Poolingformers for transformers: its own BART, mBART and RoBERTa with two-level attention in the encoder.

Importing this registers the models with ``AutoConfig`` and ``AutoModel…``. It needs transformers 5.5 and no fairseq.
"""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

# first, since it says which transformers the others need
from fairseq_poolingformer.huggingface.configuration import (
    PoolingformerBartConfig,
    PoolingformerMBartConfig,
    PoolingformerRobertaConfig,
)

# isort: split
from fairseq_poolingformer.huggingface.bart import (
    PoolingformerBartForConditionalGeneration,
    PoolingformerBartModel,
    PoolingformerMBartForConditionalGeneration,
    PoolingformerMBartModel,
)
from fairseq_poolingformer.huggingface.roberta import (
    PoolingformerRobertaForMaskedLM,
    PoolingformerRobertaForQuestionAnswering,
    PoolingformerRobertaForSequenceClassification,
    PoolingformerRobertaModel,
)

__all__ = [
    "PoolingformerBartConfig",
    "PoolingformerBartForConditionalGeneration",
    "PoolingformerBartModel",
    "PoolingformerMBartConfig",
    "PoolingformerMBartForConditionalGeneration",
    "PoolingformerMBartModel",
    "PoolingformerRobertaConfig",
    "PoolingformerRobertaForMaskedLM",
    "PoolingformerRobertaForQuestionAnswering",
    "PoolingformerRobertaForSequenceClassification",
    "PoolingformerRobertaModel",
]

for config in (PoolingformerBartConfig, PoolingformerMBartConfig, PoolingformerRobertaConfig):
    AutoConfig.register(config.model_type, config, exist_ok=True)
for auto, model in (
    (AutoModel, PoolingformerBartModel),
    (AutoModelForSeq2SeqLM, PoolingformerBartForConditionalGeneration),
    (AutoModel, PoolingformerMBartModel),
    (AutoModelForSeq2SeqLM, PoolingformerMBartForConditionalGeneration),
    (AutoModel, PoolingformerRobertaModel),
    (AutoModelForMaskedLM, PoolingformerRobertaForMaskedLM),
    (AutoModelForQuestionAnswering, PoolingformerRobertaForQuestionAnswering),
    (AutoModelForSequenceClassification, PoolingformerRobertaForSequenceClassification),
):
    auto.register(model.config_class, model, exist_ok=True)
