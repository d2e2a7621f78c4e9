"""Show what a model looks at: pages for a browser and plots, from attention weights."""

from fairseq_poolingformer.show.page import page
from fairseq_poolingformer.show.recorded import look

__all__ = ["look", "page"]
