"""fairseq's ``--task qasper``."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.tasks import register_task

from fairseq_poolingformer.tasks.hotpotqa.head import HotpotqaLogits
from fairseq_poolingformer.tasks.hotpotqa.task import HotpotqaConfig, HotpotqaTask, logits_of
from fairseq_poolingformer.tasks.qasper.examples import AnswerType, QasperSplit
from fairseq_poolingformer.tasks.qasper.scores import UNANSWERABLE
from fairseq_poolingformer.tasks.shared.heads import best_spans
from fairseq_poolingformer.tasks.shared.task import LinesPredictor
from fairseq_poolingformer.text.tokenizers import load_tokenizer

_WORDS = {AnswerType.YES: "Yes", AnswerType.NO: "No", AnswerType.NONE: UNANSWERABLE}


class QasperPredictor(LinesPredictor):
    """Answers and evidence, in the official form.

    The evidence of an answer is every paragraph that is more probable than not, or else the most probable one.
    """

    def __init__(self, folder: Path, split: str) -> None:
        self._ids, paragraphs = (QasperSplit.lines(folder, split, text) for text in ("id", "paragraphs"))
        self._paragraphs = list(map(json.loads, paragraphs))
        self._tokenizer = load_tokenizer(folder)
        self.found = {}

    def add(self, numbers: list[int], output: HotpotqaLogits, batch: dict[str, Any]) -> None:
        """Take the logits of a batch."""
        spans, tokens = best_spans(output.span), batch["net_input"]["src_tokens"]
        for row, number in enumerate(numbers):
            kind, paragraphs = AnswerType(int(output.answer_type[row].argmax())), self._paragraphs[number]
            odds = logits_of(output.sentence, row, len(paragraphs))
            chosen = np.flatnonzero(odds > min(0.0, np.nextafter(odds.max(), -np.inf)))
            if kind == AnswerType.NONE:
                chosen = chosen[:0]
            answer = _WORDS.get(kind) or self._tokenizer.decode(spans.tokens(row, tokens)).strip()
            evidence = list(dict.fromkeys(paragraphs[place] for place in chosen))
            fields = {"question_id": self._ids[number], "predicted_answer": answer, "predicted_evidence": evidence}
            self.found[number] = fields


@register_task("qasper", dataclass=HotpotqaConfig)
class QasperTask(HotpotqaTask):
    """Answers questions about a paper by one of its spans, yes, no or "Unanswerable", and finds the evidence."""

    kind = "qasper"
    layout = QasperSplit.layout
    predictor = QasperPredictor
    split_class = QasperSplit
    num_types = len(AnswerType)
