"""fairseq tasks, and the scorer of ``fairseq-generate``; importing this registers them."""

from fairseq_poolingformer.tasks.char_lm import CharLMTask
from fairseq_poolingformer.tasks.coreference import CoreferenceTask
from fairseq_poolingformer.tasks.document_classification import DocumentClassificationTask
from fairseq_poolingformer.tasks.hotpotqa import HotpotqaTask
from fairseq_poolingformer.tasks.long_masked_lm import LongMaskedLMTask
from fairseq_poolingformer.tasks.long_summarization import LongSummarizationTask
from fairseq_poolingformer.tasks.question_answering import QuestionAnsweringTask
from fairseq_poolingformer.tasks.rouge_scorer import RougeScorer
from fairseq_poolingformer.tasks.triviaqa import TriviaqaTask
from fairseq_poolingformer.tasks.wikihop import WikihopTask

__all__ = [
    "CharLMTask",
    "CoreferenceTask",
    "DocumentClassificationTask",
    "HotpotqaTask",
    "LongMaskedLMTask",
    "LongSummarizationTask",
    "QuestionAnsweringTask",
    "RougeScorer",
    "TriviaqaTask",
    "WikihopTask",
]
