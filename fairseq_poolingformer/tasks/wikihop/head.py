"""The output layer of WikiHop: a logit for each candidate."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fairseq_poolingformer.tasks.shared.heads import at_marks, initialize

JOINS = ["sum", "mean"]


class WikihopHead(nn.Module):
    """A linear layer at every ``[ent]``, whose logits an example's segments have together (Longformer, appendix D)."""

    def __init__(self, embed_dim: int, dropout: float = 0.0, join: str = "sum") -> None:
        super().__init__()
        if join not in JOINS:
            raise ValueError(f"join must be {' or '.join(JOINS)}, got {join!r}")
        self.join = join
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(embed_dim, 1)
        initialize(self)

    def forward(
        self, features: Tensor, example: Tensor, num_examples: int, candidate: Tensor, num_candidates: Tensor
    ) -> Tensor:
        """Compute the logits of a batch."""
        width = int(num_candidates.max())
        marks = at_marks(lambda x: self.score(self.dropout(x)), features, example, candidate)
        index = marks.example * width + marks.number
        sums = marks.logit.new_zeros(num_examples * width).index_add(0, index, marks.logit).view(num_examples, width)
        if self.join == "mean":
            sums = sums / torch.bincount(example, minlength=num_examples).unsqueeze(1)
        beyond = torch.arange(width, device=sums.device) >= num_candidates.unsqueeze(1)
        return sums.masked_fill(beyond, -torch.inf)
