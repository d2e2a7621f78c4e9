"""fairseq tasks, and the scorer of ``fairseq-generate``; importing this registers them."""

from fairseq_poolingformer.tasks.char_lm import CharLMTask
from fairseq_poolingformer.tasks.long_masked_lm import LongMaskedLMTask
from fairseq_poolingformer.tasks.long_summarization import LongSummarizationTask
from fairseq_poolingformer.tasks.question_answering import QuestionAnsweringTask
from fairseq_poolingformer.tasks.rouge_scorer import RougeScorer

__all__ = ["CharLMTask", "LongMaskedLMTask", "LongSummarizationTask", "QuestionAnsweringTask", "RougeScorer"]
