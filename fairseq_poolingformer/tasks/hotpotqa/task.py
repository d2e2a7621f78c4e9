"""fairseq's ``--task hotpotqa``."""

from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.tasks import register_task
from torch import Tensor

from fairseq_poolingformer.tasks.hotpotqa.examples import (
    UNKNOWN,
    HotpotqaExamples,
    HotpotqaLogits,
    HotpotqaSplit,
    MarkLogits,
)
from fairseq_poolingformer.tasks.hotpotqa.head import HotpotqaHead
from fairseq_poolingformer.tasks.hotpotqa.predictions import HotpotqaPredictor
from fairseq_poolingformer.tasks.shared.answer_spans import count_right_spans, span_losses
from fairseq_poolingformer.tasks.shared.task import DocumentTask, DocumentTaskConfig, choice_loss
from fairseq_poolingformer.text.data_folder import HOTPOTQA

_PARTS = ("span", "type", "paragraph", "sentence")


@dataclass
class HotpotqaConfig(DocumentTaskConfig):
    max_question_length: int = field(default=64, metadata={"help": "tokens that longer questions are cut to"})
    span_loss_weight: float = field(default=1.0, metadata={"help": "weight of the answer's first and last token"})
    type_loss_weight: float = field(default=1.0, metadata={"help": "weight of the kind of answer: span, yes, no"})
    paragraph_loss_weight: float = field(default=1.0, metadata={"help": "weight of the relevant paragraphs"})
    sentence_loss_weight: float = field(default=1.0, metadata={"help": "weight of the supporting facts"})


@register_task("hotpotqa", dataclass=HotpotqaConfig)
class HotpotqaTask(DocumentTask):
    """Finds an answer in several paragraphs, and the sentences that prove it (Longformer, §6.1 and appendix D).

    Both stages of the paper are this task, on different data folders.
    """

    cfg: HotpotqaConfig
    kind = "hotpotqa"
    layout = HOTPOTQA

    def __init__(self, cfg: HotpotqaConfig, dictionary: Dictionary) -> None:
        super().__init__(cfg, dictionary)
        self.weights = {part: getattr(cfg, f"{part}_loss_weight") for part in _PARTS}
        if min(self.weights.values()) < 0 or not any(self.weights.values()):
            raise ValueError(
                f"{', '.join(f'--{part}-loss-weight' for part in _PARTS)} must be 0 or more, and one of them more than "
                f"0; got {', '.join(f'{weight:g}' for weight in self.weights.values())}"
            )

    def build_head(self, embed_dim: int, dropout: float) -> HotpotqaHead:
        return HotpotqaHead(embed_dim, dropout)

    def build_examples(self, folder: Path, split: str, max_segments: int) -> HotpotqaExamples:
        return HotpotqaExamples(
            HotpotqaSplit.open(folder, split),
            self.symbols,
            self.cfg.max_positions,
            self.cfg.max_question_length,
            max_segments,
            self.uses_global_tokens,
        )

    def loss(self, output: HotpotqaLogits, target: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted sum of four losses: a span's, the kind's, and the means over paragraphs and over sentences."""
        count = output.span.num_examples
        type_loss, type_sums = choice_loss(output.answer_type, target["answer_type"], UNKNOWN, "type")
        parts = {
            "span": span_losses(output.span, target["first"], target["last"])[0].sum(),
            "type": type_loss,
            "paragraph": _mark_losses(output.paragraph, target["relevant"], count).sum(),
            "sentence": _mark_losses(output.sentence, target["supporting"], count).sum(),
        }
        loss = sum(self.weights[name] * part for name, part in parts.items())
        with torch.no_grad():
            sums = {f"{name}_loss": part.detach() for name, part in parts.items()}
            sums |= type_sums | count_right_spans(output.span, target["first"], target["last"])
            sums |= _count_right_marks("paragraph", output.paragraph, target["relevant"])
            sums |= _count_right_marks("sentence", output.sentence, target["supporting"])
        return loss, sums

    def predictor(self, folder: Path, split: str) -> HotpotqaPredictor:
        return HotpotqaPredictor(folder, split)


def _mark_losses(marks: MarkLogits, target: Tensor, num_examples: int) -> Tensor:
    """(B,) the mean binary cross entropy of each example's marks, 0 where it has none; ``target`` is (N, T)."""
    wanted = target[marks.row, marks.place].to(marks.logit.dtype)
    losses = F.binary_cross_entropy_with_logits(marks.logit, wanted, reduction="none")
    count = torch.bincount(marks.example, minlength=num_examples).clamp(min=1)
    return losses.new_zeros(num_examples).index_add(0, marks.example, losses) / count


def _count_right_marks(name: str, marks: MarkLogits, target: Tensor) -> dict[str, Tensor]:
    right = (marks.logit > 0) == (target[marks.row, marks.place] > 0)
    return {f"_{name}_correct": right.sum(), f"_{name}_total": torch.ones_like(right).sum()}
