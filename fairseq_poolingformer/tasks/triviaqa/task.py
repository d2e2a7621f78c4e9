"""fairseq's ``--task triviaqa``."""

from dataclasses import dataclass, field
from pathlib import Path

from fairseq.tasks import register_task
from torch import Tensor

from fairseq_poolingformer.tasks.shared.answer_spans import SpanLogits, count_right_spans, span_losses
from fairseq_poolingformer.tasks.shared.task import DocumentTask, DocumentTaskConfig
from fairseq_poolingformer.tasks.triviaqa.examples import TriviaqaExamples, TriviaqaPredictor, TriviaqaSplit
from fairseq_poolingformer.tasks.triviaqa.head import TriviaqaHead
from fairseq_poolingformer.text.data_folder import TRIVIAQA


@dataclass
class TriviaqaConfig(DocumentTaskConfig):
    max_document_positions: int = field(
        default=4096,
        metadata={
            "help": "cut documents to what a single segment of so many tokens would hold, also where --max-positions "
            "cuts them into smaller segments; 0: cut nothing off"
        },
    )
    max_question_length: int = field(default=64, metadata={"help": "tokens that longer questions are cut to"})


@register_task("triviaqa", dataclass=TriviaqaConfig)
class TriviaqaTask(DocumentTask):
    """Finds the piece of a document that answers a question (Longformer, §6.1)."""

    cfg: TriviaqaConfig
    kind = "triviaqa"
    layout = TRIVIAQA

    def build_head(self, embed_dim: int, dropout: float) -> TriviaqaHead:
        return TriviaqaHead(embed_dim, dropout)

    def build_examples(self, folder: Path, split: str, max_segments: int) -> TriviaqaExamples:
        return TriviaqaExamples(
            TriviaqaSplit.open(folder, split),
            self.symbols,
            self.cfg.max_positions,
            self.cfg.max_document_positions,
            self.cfg.max_question_length,
            max_segments,
            self.uses_global_tokens,
        )

    @staticmethod
    def loss(output: SpanLogits, target: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Every right span counts: see :func:`~fairseq_poolingformer.tasks.shared.answer_spans.span_losses`."""
        losses, _ = span_losses(output, target["first"], target["last"])
        return losses.sum(), count_right_spans(output, target["first"], target["last"])

    def predictor(self, folder: Path, split: str) -> TriviaqaPredictor:
        return TriviaqaPredictor(folder, split)
