"""fairseq's ``--task document_classification``: IMDB, Hyperpartisan, and any documents with labels or an amount."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.tasks import register_task
from torch import Tensor, nn

from fairseq_poolingformer.tasks.classification.data import (
    NO_LABEL,
    ClassificationExamples,
    ClassificationSplit,
    read_labels,
)
from fairseq_poolingformer.tasks.shared.heads import choice_loss, initialize, mean_over_segments, wide
from fairseq_poolingformer.tasks.shared.task import DocumentTaskConfig, LabelledTask, LinesPredictor
from fairseq_poolingformer.text.labels import AMOUNT, SEVERAL, read_problem_type


class ClassificationHead(nn.Module):
    """RoBERTa's head on ``<s>``: dropout, linear, tanh, dropout, linear; it reads the mean of a document's segments."""

    def __init__(self, embed_dim: int, num_labels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, num_labels)
        initialize(self)

    def forward(self, features: Tensor, example: Tensor, num_examples: int) -> Tensor:
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


class ClassificationPredictor(LinesPredictor):
    """Predictions of documents as JSON lines of ``id``, ``label`` (or labels, or an amount) and probabilities."""

    is_ascii = False

    def __init__(self, folder: Path, split: str) -> None:
        self._labels = read_labels(folder)
        self._problem = read_problem_type(folder, ClassificationSplit.layout)
        self._ids = ClassificationSplit.lines(folder, split)
        self.found = {}

    def add(self, numbers: list[int], output: Tensor, batch: dict[str, Any]) -> None:
        """Take (B, L) logits of the labels, or (B, 1) amounts."""
        for number, logits in zip(numbers, output, strict=True):
            self.found[number] = {"id": self._ids[number], **self._prediction(logits)}

    def _prediction(self, logits: Tensor) -> dict[str, Any]:
        if self._problem == AMOUNT:
            return {"label": logits.item()}
        if self._problem == SEVERAL:
            found = [name for name, logit in zip(self._labels, logits.tolist(), strict=True) if logit > 0]
            each = zip(self._labels, logits.sigmoid().tolist(), strict=True)
            return {"label": found, "probabilities": {name: round(value, 6) for name, value in each}}
        probability, best = logits.softmax(-1).max(-1)
        return {"label": self._labels[best], "probability": round(probability.item(), 6)}


@register_task("document_classification", dataclass=DocumentTaskConfig)
class DocumentClassificationTask(LabelledTask):
    """Finds the label of a document (Longformer, §6.3), several labels, or an amount."""

    kind = "document_classification"
    layout = ClassificationSplit.layout
    predictor = ClassificationPredictor

    def build_head(self, embed_dim: int, dropout: float) -> ClassificationHead:
        return ClassificationHead(embed_dim, len(self.labels), dropout)

    def build_examples(self, folder: Path, split: str, max_segments: int) -> ClassificationExamples:
        arrays = ClassificationSplit.open(folder, split)
        labels = {"problem": self.problem_type, "num_labels": len(self.labels)}
        return ClassificationExamples(arrays, **self.reading(max_segments), **labels)

    @staticmethod
    def loss(output: Tensor, target: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross entropy, of several labels binary, or a squared error; a document without a label counts nothing."""
        if "labels" in target:
            return several_labels_loss(output, torch.stack(target["labels"]))
        if "amount" in target:
            return amount_loss(output, torch.stack(target["amount"]))
        loss, sums = choice_loss(output, target["label"], NO_LABEL, "accuracy")
        if output.size(1) == 2:  # F1 of the second label, which is Hyperpartisan's metric
            is_known = target["label"] != NO_LABEL
            predicted, right = output[is_known].argmax(1), target["label"][is_known]
            sums |= {"_f1_correct": 2 * (predicted * right).sum(), "_f1_total": (predicted + right).sum()}
        return loss, sums
