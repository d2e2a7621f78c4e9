"""fairseq's ``--task triviaqa``."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.tasks import register_task
from torch import Tensor

from fairseq_poolingformer.options import option
from fairseq_poolingformer.tasks.shared.heads import SpanHead, SpanLogits, best_spans, count_right_spans, span_losses
from fairseq_poolingformer.tasks.shared.task import DocumentTask, DocumentTaskConfig
from fairseq_poolingformer.tasks.triviaqa.data import TriviaqaExamples, TriviaqaSplit
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.tokenizers import load_tokenizer


class TriviaqaPredictor:
    """The best span of each question (Wikipedia set: of all its documents) as the official script reads it."""

    def __init__(self, folder: Path, split: str) -> None:
        self._keys = [json.loads(line)[0] for line in TriviaqaSplit.lines(folder, split)]
        self._tokenizer = load_tokenizer(folder)
        self._best: dict[str, tuple[float, str]] = {}

    def add(self, numbers: list[int], output: SpanLogits, batch: dict[str, Any]) -> None:
        spans = best_spans(output)
        tokens = batch["net_input"]["src_tokens"]
        for row, number in enumerate(numbers):
            score = float(spans.score[row])
            answer = self._tokenizer.decode(spans.tokens(row, tokens)).strip()
            key = self._keys[number]
            if key not in self._best or score > self._best[key][0]:
                self._best[key] = (score, answer)

    def write(self, path: Path) -> None:
        ordered = {key: self._best[key][1] for key in self._keys if key in self._best}
        write_lines(path, [json.dumps(ordered, indent=1)])  # in ASCII: a lone surrogate has no UTF-8


@dataclass
class TriviaqaConfig(DocumentTaskConfig):
    max_document_positions: int = option(
        4096,
        "tokens of one segment, question included: documents are cut to what it holds, even where --max-positions "
        "makes smaller segments; 0: cut nothing off",
    )
    max_question_length: int = option(64, "tokens that longer questions are cut to")


@register_task("triviaqa", dataclass=TriviaqaConfig)
class TriviaqaTask(DocumentTask):
    """Finds the piece of a document that answers a question (Longformer, §6.1)."""

    cfg: TriviaqaConfig
    kind = "triviaqa"
    layout = TriviaqaSplit.layout
    predictor = TriviaqaPredictor
    logged = ("span_accuracy",)

    def build_head(self, embed_dim: int, dropout: float) -> SpanHead:
        return SpanHead(embed_dim, dropout)

    def build_examples(self, folder: Path, split: str, max_segments: int) -> TriviaqaExamples:
        return TriviaqaExamples(
            TriviaqaSplit.open(folder, split),
            **self.reading(max_segments),
            max_length=self.cfg.max_document_positions,
            max_question_length=self.cfg.max_question_length,
        )

    @staticmethod
    def loss(output: SpanLogits, target: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Every right span counts: see :func:`~fairseq_poolingformer.tasks.shared.heads.span_losses`."""
        losses, _ = span_losses(output, target["first"], target["last"])
        return losses.sum(), count_right_spans(output, target["first"], target["last"])
