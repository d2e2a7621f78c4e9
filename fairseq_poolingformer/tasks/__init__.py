"""fairseq tasks; importing this registers them."""

from .char_lm import CharLMTask
from .long_masked_lm import LongMaskedLMTask
from .long_summarization import LongSummarizationTask
from .question_answering import QuestionAnsweringTask

__all__ = ["CharLMTask", "LongMaskedLMTask", "LongSummarizationTask", "QuestionAnsweringTask"]
