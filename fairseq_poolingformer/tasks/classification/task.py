"""fairseq's ``--task document_classification``: IMDB, Hyperpartisan, and any documents with a label each."""

import shlex
from pathlib import Path
from typing import Any

from fairseq.tasks import register_task
from torch import Tensor

from fairseq_poolingformer.tasks.classification.examples import (
    NO_LABEL,
    ClassificationExamples,
    ClassificationPredictor,
    ClassificationSplit,
    read_labels,
)
from fairseq_poolingformer.tasks.classification.head import ClassificationHead
from fairseq_poolingformer.tasks.shared.task import DocumentTask, DocumentTaskConfig, choice_loss
from fairseq_poolingformer.text.data_folder import CLASSIFICATION


@register_task("document_classification", dataclass=DocumentTaskConfig)
class DocumentClassificationTask(DocumentTask):
    """Finds the label of a document (Longformer, §6.3). Checkpoints keep the names of the labels."""

    kind = "document_classification"
    layout = CLASSIFICATION

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
