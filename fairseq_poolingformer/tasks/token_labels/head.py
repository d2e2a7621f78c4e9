"""The output layer of labels of words."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_poolingformer.tasks.shared.heads import MarkLogits, at_marks, initialize


class TokenLabelHead(nn.Module):
    """A linear layer, with dropout, at the first piece of each word (Devlin et al. 2019, §5.3)."""

    def __init__(self, embed_dim: int, num_labels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out_proj = nn.Linear(embed_dim, num_labels)
        initialize(self)

    def forward(self, features: Tensor, example: Tensor, num_examples: int, word: Tensor) -> MarkLogits:
        """Compute (M, L) logits; ``word``, (N, T) int64, is k at the first piece of a document's k-th word, from 1."""
        return at_marks(lambda x: self.out_proj(self.dropout(x)), features, example, word)


def label_loss(words: MarkLogits, label: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Sum over documents the mean cross entropy of the words that have a label, and count the right labels."""
    wanted = label[words.row, words.place] - 1
    known = wanted >= 0
    losses = F.cross_entropy(words.logit, wanted, ignore_index=-1, reduction="none")
    count = torch.bincount(words.example, weights=known.to(losses.dtype)).clamp(min=1)
    right = (words.logit.argmax(-1) == wanted) & known
    return (losses / count[words.example]).sum(), {"_accuracy_correct": right.sum(), "_accuracy_total": known.sum()}
