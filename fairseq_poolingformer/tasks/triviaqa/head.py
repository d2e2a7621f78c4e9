"""The output layer of TriviaQA: logits of the first and the last token of the answer."""

from __future__ import annotations

from torch import Tensor, nn

from fairseq_poolingformer.tasks.shared.answer_spans import SpanLogits
from fairseq_poolingformer.tasks.shared.heads import initialize, wide


class TriviaqaHead(nn.Module):
    """A linear layer at every token (Devlin et al. 2019).

    Args:
        embed_dim: width C of the features.
        dropout: applied to what the layer reads.
    """

    def __init__(self, embed_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.span = nn.Linear(embed_dim, 2)
        initialize(self)

    def forward(self, features: Tensor, example: Tensor, num_examples: int, piece: Tensor) -> SpanLogits:
        """Compute the logits of a batch of B examples with N segments.

        Args:
            features: (N, T, C).
            example: (N,) int64, the example of each segment.
            num_examples: B.
            piece: (N, T) int64, see :class:`~fairseq_poolingformer.tasks.shared.answer_spans.SpanLogits`.
        """
        start, end = wide(self.span(self.dropout(features))).unbind(-1)
        return SpanLogits(start, end, piece, example, num_examples)
