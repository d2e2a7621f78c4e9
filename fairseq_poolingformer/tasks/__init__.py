"""fairseq tasks; importing this registers them."""

from .long_summarization import LongSummarizationTask

__all__ = ["LongSummarizationTask"]
