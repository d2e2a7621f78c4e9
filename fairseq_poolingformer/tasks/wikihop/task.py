"""fairseq's ``--task wikihop``: WikiHop and MedHop; a logit for each candidate."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task
from torch import Tensor, nn

from fairseq_poolingformer.options import option
from fairseq_poolingformer.tasks.shared.heads import at_marks, choice_loss, initialize
from fairseq_poolingformer.tasks.shared.task import DocumentTask, DocumentTaskConfig
from fairseq_poolingformer.tasks.wikihop.data import NO_ANSWER, Order, WikihopExamples, WikihopSplit
from fairseq_poolingformer.text.atomic_write import write_lines

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
        width = int(num_candidates.max())
        marks = at_marks(lambda x: self.score(self.dropout(x)), features, example, candidate)
        index = marks.example * width + marks.number
        sums = marks.logit.new_zeros(num_examples * width).index_add(0, index, marks.logit).view(num_examples, width)
        if self.join == "mean":
            sums = sums / torch.bincount(example, minlength=num_examples).unsqueeze(1)
        beyond = torch.arange(width, device=sums.device) >= num_candidates.unsqueeze(1)
        return sums.masked_fill(beyond, -torch.inf)


class WikihopPredictor:
    """The most probable candidate of each example, written as the official script reads it: {id: candidate}."""

    def __init__(self, folder: Path, split: str) -> None:
        self._ids = WikihopSplit.lines(folder, split)
        self._candidates = WikihopSplit.lines(folder, split, "candidates")
        self._answers: dict[str, str] = {}

    def add(self, numbers: list[int], output: Any, batch: dict[str, Any]) -> None:
        """Take (B, K) logits of the candidates."""
        for number, best in zip(numbers, output.argmax(-1).tolist(), strict=True):
            self._answers[self._ids[number]] = json.loads(self._candidates[number])[best]

    def write(self, path: Path) -> None:
        ordered = {name: self._answers[name] for name in self._ids if name in self._answers}
        write_lines(path, [json.dumps(ordered, indent=1)])  # in ASCII: a lone surrogate has no UTF-8


@dataclass
class WikihopConfig(DocumentTaskConfig):
    keep_order: bool = option(
        False, "train on candidates and supports in the order of the data folder, not in one of each epoch"
    )
    segment_logits: ChoiceEnum(JOINS) = option(
        "sum", "a candidate's logits in several segments: sum (Longformer's code) or mean (its paper)"
    )


@register_task("wikihop", dataclass=WikihopConfig)
class WikihopTask(DocumentTask):
    """Chooses the candidate that answers a question about several documents (Longformer, §6.1)."""

    cfg: WikihopConfig
    kind = "wikihop"
    layout = WikihopSplit.layout
    predictor = WikihopPredictor
    logged = ("accuracy",)

    def build_head(self, embed_dim: int, dropout: float) -> WikihopHead:
        return WikihopHead(embed_dim, dropout, str(self.cfg.segment_logits))

    def build_examples(self, folder: Path, split: str, max_segments: int) -> WikihopExamples:
        names = WikihopSplit.lines(folder, split)
        is_shuffled = split == self.cfg.train_subset and not self.cfg.keep_order
        return WikihopExamples(
            WikihopSplit.open(folder, split),
            **self.reading(max_segments),
            names=names,
            order=Order(self.cfg.seed, names) if is_shuffled else None,
        )

    def read_whole(self) -> None:
        """Read every split whole, in the order of the data folder."""
        super().read_whole()
        self.cfg.keep_order = True

    @staticmethod
    def loss(output: Tensor, target: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross entropy over the candidates; an example without an answer counts nothing."""
        return choice_loss(output, target["answer"], NO_ANSWER, "accuracy")
