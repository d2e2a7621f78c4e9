"""Poolingformers for transformers: its own encoders with two-level attention.

Importing this registers the models with ``AutoConfig`` and ``AutoModel…``, and ``attn_implementation="band"`` for
windows of any of transformers' models (:mod:`.band`), and ``pipeline("summarization")`` and others that transformers no
longer has (:mod:`.pipelines`). It needs transformers 5.5 and no fairseq.
"""

from fairseq_poolingformer.extras import needing

with needing("huggingface"):
    import transformers

# first, since it says which transformers the others need
from fairseq_poolingformer.huggingface.configuration import (
    PoolingformerBartConfig,
    PoolingformerBertConfig,
    PoolingformerDistilBertConfig,
    PoolingformerElectraConfig,
    PoolingformerMarianConfig,
    PoolingformerMBartConfig,
    PoolingformerModernBertConfig,
    PoolingformerMPNetConfig,
    PoolingformerPegasusConfig,
    PoolingformerRobertaConfig,
    PoolingformerT5Config,
)

# isort: split
from fairseq_poolingformer.huggingface import band, pipelines
from fairseq_poolingformer.huggingface.bart import (
    PoolingformerBartForConditionalGeneration,
    PoolingformerBartForQuestionAnswering,
    PoolingformerBartForSequenceClassification,
    PoolingformerBartModel,
    PoolingformerMBartForConditionalGeneration,
    PoolingformerMBartForQuestionAnswering,
    PoolingformerMBartForSequenceClassification,
    PoolingformerMBartModel,
)
from fairseq_poolingformer.huggingface.embeddings import embed_passages
from fairseq_poolingformer.huggingface.families import (
    PoolingformerBertForMaskedLM,
    PoolingformerBertForMultipleChoice,
    PoolingformerBertForQuestionAnswering,
    PoolingformerBertForSequenceClassification,
    PoolingformerBertForTokenClassification,
    PoolingformerBertModel,
    PoolingformerDistilBertForMaskedLM,
    PoolingformerDistilBertForMultipleChoice,
    PoolingformerDistilBertForQuestionAnswering,
    PoolingformerDistilBertForSequenceClassification,
    PoolingformerDistilBertForTokenClassification,
    PoolingformerDistilBertModel,
    PoolingformerElectraForMaskedLM,
    PoolingformerElectraForMultipleChoice,
    PoolingformerElectraForQuestionAnswering,
    PoolingformerElectraForSequenceClassification,
    PoolingformerElectraForTokenClassification,
    PoolingformerElectraModel,
)
from fairseq_poolingformer.huggingface.modernbert import (
    PoolingformerModernBertForMaskedLM,
    PoolingformerModernBertForMultipleChoice,
    PoolingformerModernBertForQuestionAnswering,
    PoolingformerModernBertForSequenceClassification,
    PoolingformerModernBertForTokenClassification,
    PoolingformerModernBertModel,
)
from fairseq_poolingformer.huggingface.mpnet import (
    PoolingformerMPNetForMaskedLM,
    PoolingformerMPNetForMultipleChoice,
    PoolingformerMPNetForQuestionAnswering,
    PoolingformerMPNetForSequenceClassification,
    PoolingformerMPNetForTokenClassification,
    PoolingformerMPNetModel,
)
from fairseq_poolingformer.huggingface.parallel import context_parallel
from fairseq_poolingformer.huggingface.remote_code import CLASSES, auto_map
from fairseq_poolingformer.huggingface.roberta import (
    PoolingformerRobertaForMaskedLM,
    PoolingformerRobertaForMultipleChoice,
    PoolingformerRobertaForQuestionAnswering,
    PoolingformerRobertaForSequenceClassification,
    PoolingformerRobertaForTokenClassification,
    PoolingformerRobertaModel,
)
from fairseq_poolingformer.huggingface.sinusoidal import (
    PoolingformerMarianModel,
    PoolingformerMarianMTModel,
    PoolingformerPegasusForConditionalGeneration,
    PoolingformerPegasusModel,
)
from fairseq_poolingformer.huggingface.t5 import (
    PoolingformerT5EncoderModel,
    PoolingformerT5ForConditionalGeneration,
    PoolingformerT5Model,
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
    "PoolingformerBartForQuestionAnswering",
    "PoolingformerBartForSequenceClassification",
    "PoolingformerBartModel",
    "PoolingformerBertConfig",
    "PoolingformerBertForMaskedLM",
    "PoolingformerBertForMultipleChoice",
    "PoolingformerBertForQuestionAnswering",
    "PoolingformerBertForSequenceClassification",
    "PoolingformerBertForTokenClassification",
    "PoolingformerBertModel",
    "PoolingformerDistilBertConfig",
    "PoolingformerDistilBertForMaskedLM",
    "PoolingformerDistilBertForMultipleChoice",
    "PoolingformerDistilBertForQuestionAnswering",
    "PoolingformerDistilBertForSequenceClassification",
    "PoolingformerDistilBertForTokenClassification",
    "PoolingformerDistilBertModel",
    "PoolingformerElectraConfig",
    "PoolingformerElectraForMaskedLM",
    "PoolingformerElectraForMultipleChoice",
    "PoolingformerElectraForQuestionAnswering",
    "PoolingformerElectraForSequenceClassification",
    "PoolingformerElectraForTokenClassification",
    "PoolingformerElectraModel",
    "PoolingformerMBartConfig",
    "PoolingformerMBartForConditionalGeneration",
    "PoolingformerMBartForQuestionAnswering",
    "PoolingformerMBartForSequenceClassification",
    "PoolingformerMBartModel",
    "PoolingformerMPNetConfig",
    "PoolingformerMPNetForMaskedLM",
    "PoolingformerMPNetForMultipleChoice",
    "PoolingformerMPNetForQuestionAnswering",
    "PoolingformerMPNetForSequenceClassification",
    "PoolingformerMPNetForTokenClassification",
    "PoolingformerMPNetModel",
    "PoolingformerMarianConfig",
    "PoolingformerMarianMTModel",
    "PoolingformerMarianModel",
    "PoolingformerModernBertConfig",
    "PoolingformerModernBertForMaskedLM",
    "PoolingformerModernBertForMultipleChoice",
    "PoolingformerModernBertForQuestionAnswering",
    "PoolingformerModernBertForSequenceClassification",
    "PoolingformerModernBertForTokenClassification",
    "PoolingformerModernBertModel",
    "PoolingformerPegasusConfig",
    "PoolingformerPegasusForConditionalGeneration",
    "PoolingformerPegasusModel",
    "PoolingformerRobertaConfig",
    "PoolingformerRobertaForCoreference",
    "PoolingformerRobertaForHotpotqa",
    "PoolingformerRobertaForMaskedLM",
    "PoolingformerRobertaForMultipleChoice",
    "PoolingformerRobertaForNaturalQuestions",
    "PoolingformerRobertaForQuestionAnswering",
    "PoolingformerRobertaForSequenceClassification",
    "PoolingformerRobertaForTokenClassification",
    "PoolingformerRobertaForWikihop",
    "PoolingformerRobertaModel",
    "PoolingformerT5Config",
    "PoolingformerT5EncoderModel",
    "PoolingformerT5ForConditionalGeneration",
    "PoolingformerT5Model",
    "band",
    "context_parallel",
    "embed_passages",
    "pipelines",
]

for model_type, (start, *_) in CLASSES.items():
    config = globals()[f"{start}Config"]
    transformers.AutoConfig.register(model_type, config, exist_ok=True)
    for auto, reference in auto_map(model_type).items():
        if auto != "AutoConfig":
            getattr(transformers, auto).register(config, globals()[reference.split(".")[1]], exist_ok=True)
