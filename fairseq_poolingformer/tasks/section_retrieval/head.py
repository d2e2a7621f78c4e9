"""The output layer of section retrieval: a logit for each section."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fairseq_poolingformer.tasks.shared.heads import at_marks, initialize, log_sum_exp_by_example


class SectionHead(nn.Module):
    """Two linear layers at every mark; several marks of a section have the log of their summed exponentials."""

    def __init__(self, embed_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.score = nn.Linear(embed_dim, 1)
        initialize(self)

    def forward(
        self, features: Tensor, example: Tensor, num_examples: int, section: Tensor, num_sections: Tensor
    ) -> Tensor:
        """Compute the logits of a batch.

        Args:
            section: (N, T) int64, k at a mark of the k-th section, counted from 1, and 0 elsewhere.
            num_sections: (B,) int64.

        Returns:
            (B, K), the lowest number of their type where a section has no mark.
        """
        width = int(num_sections.max())
        marks = at_marks(
            lambda x: self.score(self.dropout(torch.tanh(self.dense(self.dropout(x))))), features, example, section
        )
        logits = marks.logit.unsqueeze(1)
        each = marks.example * width + marks.number
        joined = log_sum_exp_by_example(logits, torch.ones_like(logits, dtype=torch.bool), each, num_examples * width)
        return joined.clamp(min=torch.finfo(joined.dtype).min).view(num_examples, width)
