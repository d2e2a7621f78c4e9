"""The output layers of document classification."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fairseq_poolingformer.tasks.shared.heads import initialize, mean_over_segments, wide


class ClassificationHead(nn.Module):
    """RoBERTa's head on ``<s>``: dropout, linear, tanh, dropout, linear; it reads the mean over a document's segments.

    Args:
        embed_dim: width C of the features.
        num_labels: L.
        dropout: applied to what each linear layer reads.
    """

    def __init__(self, embed_dim: int, num_labels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, num_labels)
        initialize(self)

    def forward(self, features: Tensor, example: Tensor, num_examples: int) -> Tensor:
        """Compute the logits of B documents.

        Args:
            features: (N, T, C), ``<s>`` first.
            example: (N,) int64, the document of each segment.
            num_examples: B.

        Returns:
            (B, L), in float32 where the features have fewer bits.
        """
        means = mean_over_segments(wide(features[:, 0]), example, num_examples)
        hidden = torch.tanh(self.dense(self.dropout(means.to(features.dtype))))
        return wide(self.out_proj(self.dropout(hidden)))
