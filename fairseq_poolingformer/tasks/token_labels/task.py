"""fairseq's ``--task token_labels``: a label for each word of long documents."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.tasks import register_task
from torch import Tensor, nn

from fairseq_poolingformer.tasks.shared.heads import MarkLogits, at_marks, initialize
from fairseq_poolingformer.tasks.shared.task import DocumentTaskConfig, LabelledTask, LinesPredictor
from fairseq_poolingformer.tasks.token_labels.data import EntityCounts, TokenLabelExamples, TokenLabelSplit, entities
from fairseq_poolingformer.text.labels import read_labels


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


class TokenLabelPredictor(LinesPredictor):
    """The most probable label of each word, written as JSON lines of id, tokens, labels and sizes of sentences."""

    def __init__(self, folder: Path, split: str) -> None:
        self._labels = read_labels(folder, TokenLabelSplit.layout)
        self._ids, self._words = (TokenLabelSplit.lines(folder, split, text) for text in ("id", "words"))
        self._sentence = TokenLabelSplit.open(folder, split).sentence
        self.found = {}

    def add(self, numbers: list[int], output: MarkLogits, batch: dict[str, Any]) -> None:
        """Take the logits of a batch; ``output.logit`` is (M, L)."""
        best = output.logit.argmax(-1)
        for row, number in enumerate(numbers):
            own = output.example == row
            order = output.number[own].argsort()
            self.found[number] = {
                "id": self._ids[number],
                "tokens": json.loads(self._words[number]),
                "labels": [self._labels[label] for label in best[own][order].tolist()],
                "sentences": self._sentence[number].tolist(),
            }


@register_task("token_labels", dataclass=DocumentTaskConfig)
class TokenLabelTask(LabelledTask):
    """Finds the label of each word. Validation logs ``f1`` of entities, which ``--best-checkpoint-metric`` takes."""

    kind = "token_labels"
    layout = TokenLabelSplit.layout
    predictor = TokenLabelPredictor

    def build_head(self, embed_dim: int, dropout: float) -> TokenLabelHead:
        return TokenLabelHead(embed_dim, len(self.labels), dropout)

    def build_examples(self, folder: Path, split: str, max_segments: int) -> TokenLabelExamples:
        arrays = TokenLabelSplit.open(folder, split)
        return TokenLabelExamples(arrays, **self.reading(max_segments), seed=self.cfg.seed)

    def loss(self, output: MarkLogits, target: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross entropy, the mean over each document's words; in validation the counts of F1, too."""
        loss, sums = label_loss(output, target["label"])
        return loss, sums if torch.is_grad_enabled() else sums | self._counts(output, target)

    def _counts(self, output: MarkLogits, target: dict[str, Tensor]) -> dict[str, Tensor]:
        place = output.row, output.place
        columns = torch.stack([target["label"][place] - 1, output.logit.argmax(-1), target["begins"][place]])
        columns = columns[:, columns[0] >= 0].tolist()
        begins = [*np.flatnonzero(columns[2]).tolist(), len(columns[2])]
        sentences = np.diff(begins).tolist()
        there, found = (entities([self.labels[n] for n in column], sentences) for column in columns[:2])
        counts = EntityCounts.of([(found, there)])
        sums = {"correct": 2 * counts.right.total(), "total": counts.found.total() + counts.there.total()}
        return {f"_f1_{name}": torch.tensor(value, device=output.logit.device) for name, value in sums.items()}
