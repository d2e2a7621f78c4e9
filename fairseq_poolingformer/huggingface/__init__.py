"""Poolingformers for transformers: its own BART, mBART, RoBERTa and ModernBERT with two-level attention in the encoder.

Importing this registers the models with ``AutoConfig`` and ``AutoModel…``, and ``attn_implementation="band"`` for
windows of any of transformers' models (:mod:`.band`). It needs transformers 5.5 and no fairseq.
"""

import transformers

# first, since it says which transformers the others need
from fairseq_poolingformer.huggingface.configuration import (
    PoolingformerBartConfig,
    PoolingformerMBartConfig,
    PoolingformerModernBertConfig,
    PoolingformerRobertaConfig,
)

# isort: split
from fairseq_poolingformer.huggingface import band
from fairseq_poolingformer.huggingface.bart import (
    PoolingformerBartForConditionalGeneration,
    PoolingformerBartModel,
    PoolingformerMBartForConditionalGeneration,
    PoolingformerMBartModel,
)
from fairseq_poolingformer.huggingface.embeddings import embed_passages
from fairseq_poolingformer.huggingface.modernbert import (
    PoolingformerModernBertForMaskedLM,
    PoolingformerModernBertForMultipleChoice,
    PoolingformerModernBertForQuestionAnswering,
    PoolingformerModernBertForSequenceClassification,
    PoolingformerModernBertForTokenClassification,
    PoolingformerModernBertModel,
)
from fairseq_poolingformer.huggingface.remote_code import auto_map
from fairseq_poolingformer.huggingface.roberta import (
    PoolingformerRobertaForMaskedLM,
    PoolingformerRobertaForQuestionAnswering,
    PoolingformerRobertaForSequenceClassification,
    PoolingformerRobertaForTokenClassification,
    PoolingformerRobertaModel,
)
from fairseq_poolingformer.huggingface.task_heads import (
    PoolingformerRobertaForCoreference,
    PoolingformerRobertaForHotpotqa,
    PoolingformerRobertaForNaturalQuestions,
    PoolingformerRobertaForWikihop,
)

__all__ = [
    "PoolingformerBartConfig",
    "PoolingformerBartForConditionalGeneration",
    "PoolingformerBartModel",
    "PoolingformerMBartConfig",
    "PoolingformerMBartForConditionalGeneration",
    "PoolingformerMBartModel",
    "PoolingformerModernBertConfig",
    "PoolingformerModernBertForMaskedLM",
    "PoolingformerModernBertForMultipleChoice",
    "PoolingformerModernBertForQuestionAnswering",
    "PoolingformerModernBertForSequenceClassification",
    "PoolingformerModernBertForTokenClassification",
    "PoolingformerModernBertModel",
    "PoolingformerRobertaConfig",
    "PoolingformerRobertaForCoreference",
    "PoolingformerRobertaForHotpotqa",
    "PoolingformerRobertaForMaskedLM",
    "PoolingformerRobertaForNaturalQuestions",
    "PoolingformerRobertaForQuestionAnswering",
    "PoolingformerRobertaForSequenceClassification",
    "PoolingformerRobertaForTokenClassification",
    "PoolingformerRobertaForWikihop",
    "PoolingformerRobertaModel",
    "band",
    "embed_passages",
]

for config in (
    PoolingformerBartConfig,
    PoolingformerMBartConfig,
    PoolingformerModernBertConfig,
    PoolingformerRobertaConfig,
):
    transformers.AutoConfig.register(config.model_type, config, exist_ok=True)
    for auto, reference in auto_map(config.model_type).items():
        if auto != "AutoConfig":
            getattr(transformers, auto).register(config, globals()[reference.split(".")[1]], exist_ok=True)
