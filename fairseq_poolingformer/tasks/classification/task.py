"""fairseq's ``--task document_classification``: IMDB, Hyperpartisan, and any documents with a label each."""

from pathlib import Path
from typing import Any

import torch
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


class ClassificationPredictor(LinesPredictor):
    """Predictions of documents as JSON lines of ``id``, ``label`` and ``probability``."""

    is_ascii = False

    def __init__(self, folder: Path, split: str) -> None:
        self._labels = read_labels(folder)
        self._ids = ClassificationSplit.lines(folder, split)
        self.found = {}

    def add(self, numbers: list[int], output: Tensor, batch: dict[str, Any]) -> None:
        """Take (B, L) logits of the labels."""
        for number, logits in zip(numbers, output, strict=True):
            probability, best = logits.softmax(-1).max(-1)
            prediction = {"label": self._labels[best], "probability": round(probability.item(), 6)}
            self.found[number] = {"id": self._ids[number], **prediction}


@register_task("document_classification", dataclass=DocumentTaskConfig)
class DocumentClassificationTask(LabelledTask):
    """Finds the label of a document (Longformer, §6.3)."""

    kind = "document_classification"
    layout = ClassificationSplit.layout
    predictor = ClassificationPredictor

    @property
    def logged(self) -> tuple[str, ...]:
        return ("accuracy", "f1") if len(self.labels) == 2 else ("accuracy",)

    def build_head(self, embed_dim: int, dropout: float) -> ClassificationHead:
        return ClassificationHead(embed_dim, len(self.labels), dropout)

    def build_examples(self, folder: Path, split: str, max_segments: int) -> ClassificationExamples:
        return ClassificationExamples(ClassificationSplit.open(folder, split), **self.reading(max_segments))

    @staticmethod
    def loss(output: Tensor, target: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross entropy; a document without a label counts nothing."""
        loss, sums = choice_loss(output, target["label"], NO_LABEL, "accuracy")
        if output.size(1) == 2:  # F1 of the second label, which is Hyperpartisan's metric
            is_known = target["label"] != NO_LABEL
            predicted, right = output[is_known].argmax(1), target["label"][is_known]
            sums |= {"_f1_correct": 2 * (predicted * right).sum(), "_f1_total": (predicted + right).sum()}
        return loss, sums
