"""fairseq's ``--criterion question_answering``."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from torch import Tensor

from fairseq_poolingformer.tasks.question_answering.head import AnswerLogits
from fairseq_poolingformer.tasks.shared.task import DocumentTaskCriterion, check_weights

_LOSSES = ("loss", "span_loss", "paragraph_loss", "type_loss")


@dataclass
class QuestionAnsweringCriterionConfig(FairseqDataclass):
    span_loss_weight: float = field(
        default=1.0, metadata={"help": "weight of the span's loss, the mean of start and end; 2: their sum"}
    )
    paragraph_loss_weight: float = field(default=1.0, metadata={"help": "weight of the paragraph's loss"})
    type_loss_weight: float = field(default=1.0, metadata={"help": "weight of the answer type's loss"})


@register_criterion("question_answering", dataclass=QuestionAnsweringCriterionConfig)
class QuestionAnsweringCriterion(DocumentTaskCriterion):
    """The weighted sum of a segment's cross entropies: span, (start + end) / 2; paragraph; answer type.

    It logs the loss and its three parts, without their weights, in bits as fairseq's other criterions do. It also logs
    the shares of segments whose answer type, paragraph and span (both ends) have the largest logit; ``answered_``
    counts only segments that have a paragraph or a span to find.
    """

    def __init__(
        self, task, span_loss_weight: float = 1.0, paragraph_loss_weight: float = 1.0, type_loss_weight: float = 1.0
    ) -> None:
        super().__init__(task)
        self.weights = (span_loss_weight, paragraph_loss_weight, type_loss_weight)
        check_weights(dict(zip(("span", "paragraph", "type"), self.weights, strict=True)))

    def forward(self, model, sample: dict[str, Any], reduce: bool = True):
        """Compute the loss of a batch of ``QuestionAnsweringDataset``, a sum whatever ``reduce`` is."""
        logits, _ = model(**sample["net_input"])
        target = sample["target"]
        span = (_cross_entropy(logits.start, target["start"]) + _cross_entropy(logits.end, target["end"])) / 2
        paragraph = _cross_entropy(logits.paragraph, target["paragraph"])
        answer_type = _cross_entropy(logits.answer_type, target["answer_type"])
        parts = (span, paragraph, answer_type)
        loss = sum(weight * part for weight, part in zip(self.weights, parts, strict=True))
        count = sample["nsentences"]
        logging_output = {name: part.detach() for name, part in zip(_LOSSES, (loss, *parts), strict=True)}
        logging_output |= {"ntokens": sample["ntokens"], "nsentences": count, "sample_size": count}
        return loss, count, logging_output | count_correct(logits, target)


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits, target, reduction="sum")


@torch.no_grad()
def count_correct(logits: AnswerLogits, target: dict[str, Tensor]) -> dict[str, Tensor]:
    """Count right answers, as ``_NAME_accuracy_correct`` and ``_NAME_accuracy_total`` on the device."""
    is_right = {
        "type": logits.answer_type.argmax(-1) == target["answer_type"],
        "paragraph": logits.paragraph.argmax(-1) == target["paragraph"],
        "span": (logits.start.argmax(-1) == target["start"]) & (logits.end.argmax(-1) == target["end"]),
    }
    counts = {}
    for name, right in is_right.items():
        counts |= {f"_{name}_accuracy_correct": right.sum(), f"_{name}_accuracy_total": torch.ones_like(right).sum()}
    for name, asked in (("paragraph", target["paragraph"] > 0), ("span", target["start"] > 0)):
        right = is_right[name] & asked
        counts |= {f"_answered_{name}_accuracy_correct": right.sum(), f"_answered_{name}_accuracy_total": asked.sum()}
    return counts
