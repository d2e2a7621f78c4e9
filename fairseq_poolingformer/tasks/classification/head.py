"""The output layers of document classification."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_poolingformer.tasks.shared.heads import initialize, mean_over_segments, wide


class ClassificationHead(nn.Module):
    """RoBERTa's head on ``<s>``: dropout, linear, tanh, dropout, linear; it reads the mean of a document's segments."""

    def __init__(self, embed_dim: int, num_labels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, num_labels)
        initialize(self)

    def forward(self, features: Tensor, example: Tensor, num_examples: int) -> Tensor:
        """Compute (B, L) logits."""
        means = mean_over_segments(wide(features[:, 0]), example, num_examples)
        hidden = torch.tanh(self.dense(self.dropout(means.to(features.dtype))))
        return wide(self.out_proj(self.dropout(hidden)))


def several_labels_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Sum over documents the mean binary cross entropy of their labels; count for the micro-averaged F1, too."""
    known = (labels >= 0).all(1)
    logits, labels = logits[known], labels[known].to(logits.dtype)
    loss = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum") / labels.size(1)
    found, there = logits > 0, labels > 0
    hits = 2 * (found & there).sum()
    sums = {"_f1_correct": hits, "_f1_total": found.sum() + there.sum()}
    return loss, sums | {"_accuracy_correct": (found == there).all(1).sum(), "_accuracy_total": known.sum()}


def amount_loss(output: Tensor, amount: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Sum squared errors; ``output`` and ``amount`` are (B, 1), NaN where it is not known."""
    known = ~amount.isnan()
    loss = F.mse_loss(output[known], amount[known].to(output.dtype), reduction="sum")
    return loss, {"_mse_correct": loss.detach(), "_mse_total": known.sum()}
