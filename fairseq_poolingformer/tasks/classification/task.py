"""fairseq's ``--task document_classification``: IMDB, Hyperpartisan, and any documents with labels or an amount."""

from pathlib import Path
from typing import Any

import torch
from fairseq.tasks import register_task
from torch import Tensor

from fairseq_poolingformer.tasks.classification.examples import (
    NO_LABEL,
    ClassificationExamples,
    ClassificationSplit,
    read_labels,
)
from fairseq_poolingformer.tasks.classification.head import ClassificationHead, amount_loss, several_labels_loss
from fairseq_poolingformer.tasks.shared.heads import choice_loss
from fairseq_poolingformer.tasks.shared.task import DocumentTaskConfig, LabelledTask, LinesPredictor
from fairseq_poolingformer.text.labels import AMOUNT, SEVERAL, read_problem_type


class ClassificationPredictor(LinesPredictor):
    """What is predicted of each document, written as JSON lines of ``id``, ``label`` and more.

    ``label`` is the most probable label, beside its ``probability``; a list of the labels that are more probable than
    not, beside the ``probabilities`` of all; or an amount.
    """

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
        return choice_loss(output, target["label"], NO_LABEL, "accuracy")
