"""fairseq's ``--task section_retrieval``: which section a cross-reference names."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq.tasks import register_task
from torch import Tensor

from fairseq_poolingformer.tasks.section_retrieval.examples import NO_ANSWER, SectionExamples, SectionSplit
from fairseq_poolingformer.tasks.section_retrieval.head import SectionHead
from fairseq_poolingformer.tasks.shared.heads import choice_loss
from fairseq_poolingformer.tasks.shared.task import DocumentTask, DocumentTaskConfig
from fairseq_poolingformer.text.whole_file import write_lines


class SectionPredictor:
    """The sections of each example but the question's own, the most probable first."""

    def __init__(self, folder: Path, split: str) -> None:
        self._ids, self._split = SectionSplit.lines(folder, split), SectionSplit.open(folder, split)
        self._found: dict[str, list[int]] = {}

    def add(self, numbers: list[int], output: Any, batch: dict[str, Any]) -> None:
        """Take (B, K) logits of the sections."""
        for number, order in zip(numbers, output.argsort(dim=-1, descending=True, stable=True).tolist(), strict=True):
            own, count = int(self._split.own[number][0]), int(self._split.size.sizes[number])
            self._found[self._ids[number]] = [section for section in order if section < count and section != own]

    def write(self, path: Path) -> None:
        """Write the predictions in the order of the data folder."""
        write_lines(
            path, [json.dumps({"sections": {name: self._found[name] for name in self._ids if name in self._found}})]
        )


@dataclass
class SectionRetrievalConfig(DocumentTaskConfig):
    global_marks: bool = field(default=False, metadata={"help": "make the sections' marks global, as the question is"})


@register_task("section_retrieval", dataclass=SectionRetrievalConfig)
class SectionRetrievalTask(DocumentTask):
    """Finds the section that a sentence of a document refers to."""

    cfg: SectionRetrievalConfig
    kind = "section_retrieval"
    layout = SectionSplit.layout
    predictor = SectionPredictor

    def build_head(self, embed_dim: int, dropout: float) -> SectionHead:
        return SectionHead(embed_dim, dropout)

    def build_examples(self, folder: Path, split: str, max_segments: int) -> SectionExamples:
        arrays = SectionSplit.open(folder, split)
        return SectionExamples(arrays, **self.reading(max_segments), global_marks=self.cfg.global_marks)

    @staticmethod
    def loss(output: Tensor, target: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross entropy over the sections; logs the mean of one over the right section's rank, too."""
        answer = target["answer"]
        loss, sums = choice_loss(output, answer, NO_ANSWER, "accuracy")
        rank = (output >= output.gather(1, answer.clamp(min=0).unsqueeze(1))).sum(1)
        reciprocal = rank.reciprocal()[answer != NO_ANSWER].sum()
        return loss, sums | {"_mrr_correct": reciprocal, "_mrr_total": sums["_accuracy_total"]}
