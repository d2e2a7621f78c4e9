"""fairseq tasks; importing this registers them."""

from .long_masked_lm import LongMaskedLMTask
from .long_summarization import LongSummarizationTask
from .question_answering import QuestionAnsweringTask

__all__ = ["LongMaskedLMTask", "LongSummarizationTask", "QuestionAnsweringTask"]
