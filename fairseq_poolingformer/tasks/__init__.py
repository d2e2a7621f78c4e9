"""fairseq tasks; importing this registers them."""

from .long_summarization import LongSummarizationTask
from .question_answering import QuestionAnsweringTask

__all__ = ["LongSummarizationTask", "QuestionAnsweringTask"]
