"""fairseq's ``--task document_classification``: IMDB, Hyperpartisan, and any documents with a label each."""

import json
import shlex
from pathlib import Path
from typing import Any

from fairseq.tasks import register_task
from torch import Tensor

from fairseq_poolingformer.tasks.classification.examples import (
    NO_LABEL,
    ClassificationExamples,
    ClassificationSplit,
    read_labels,
)
from fairseq_poolingformer.tasks.classification.head import ClassificationHead
from fairseq_poolingformer.tasks.shared.heads import choice_loss
from fairseq_poolingformer.tasks.shared.task import DocumentTask, DocumentTaskConfig
from fairseq_poolingformer.text.whole_file import write_lines


class ClassificationPredictor:
    """The most probable label of each document, written as JSON lines of id, label and the label's probability.

    Args:
        folder: the data folder.
        split: e.g. "valid".
    """

    def __init__(self, folder: Path, split: str) -> None:
        self._labels = read_labels(folder)
        self._ids = ClassificationSplit.lines(folder, split)
        self._found: dict[int, tuple[str, float]] = {}

    def add(self, numbers: list[int], output: Any, batch: dict[str, Any]) -> None:
        """Take (B, L) logits of the labels."""
        probabilities, best = output.softmax(-1).max(-1)
        for number, label, probability in zip(numbers, best.tolist(), probabilities.tolist(), strict=True):
            self._found[number] = self._labels[label], probability

    def write(self, path: Path) -> None:
        """Write the predictions in the order of the data folder."""
        lines = []
        for number in sorted(self._found):
            label, probability = self._found[number]
            record = {"id": self._ids[number], "label": label, "probability": round(probability, 6)}
            lines.append(json.dumps(record, ensure_ascii=False))
        write_lines(path, lines)


@register_task("document_classification", dataclass=DocumentTaskConfig)
class DocumentClassificationTask(DocumentTask):
    """Finds the label of a document (Longformer, §6.3). Checkpoints keep the names of the labels."""

    kind = "document_classification"
    layout = ClassificationSplit.layout

    def build_head(self, embed_dim: int, dropout: float) -> ClassificationHead:
        return ClassificationHead(embed_dim, len(read_labels(self.data_folder)), dropout)

    def build_examples(self, folder: Path, split: str, max_segments: int) -> ClassificationExamples:
        arrays = ClassificationSplit.open(folder, split)
        return ClassificationExamples(
            arrays, self.symbols, self.cfg.max_positions, max_segments, self.uses_global_tokens
        )

    @staticmethod
    def loss(output: Tensor, target: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross entropy; a document without a label counts nothing."""
        return choice_loss(output, target["label"], NO_LABEL, "accuracy")

    def predictor(self, folder: Path, split: str) -> ClassificationPredictor:
        return ClassificationPredictor(folder, split)

    def state_dict(self) -> dict[str, Any]:
        """The state that every task saves, and the names of the labels."""
        return {**super().state_dict(), "labels": read_labels(self.data_folder)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Check that a checkpoint which is to predict or to be validated has the data folder's dictionary and labels.

        Raises:
            ValueError: it has others, or in another order.
        """
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "labels"})
        own, trained = read_labels(self.data_folder), state_dict.get("labels")
        if trained is not None and trained != own:
            raise ValueError(
                f"the checkpoint's labels are {', '.join(trained)}, but those of {self.data_folder} are "
                f"{', '.join(own)}; make the folder with --labels {' '.join(map(shlex.quote, trained))}"
            )
