"""fairseq's ``--task hotpotqa``: an answer, and the sentences that prove it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.tasks import register_task
from torch import Tensor, nn

from fairseq_poolingformer.options import option
from fairseq_poolingformer.tasks.hotpotqa.data import (
    PARAGRAPH_SCORES,
    UNKNOWN,
    AnswerType,
    HotpotqaExamples,
    HotpotqaSplit,
)
from fairseq_poolingformer.tasks.shared.heads import (
    MarkLogits,
    SpanHead,
    SpanLogits,
    at_marks,
    best_spans,
    choice_loss,
    count_right_marks,
    count_right_spans,
    initialize,
    mark_losses,
    mean_over_segments,
    span_losses,
    wide,
)
from fairseq_poolingformer.tasks.shared.task import DocumentTask, DocumentTaskConfig, check_weights
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.tokenizers import load_tokenizer


@dataclass(frozen=True)
class HotpotqaLogits:
    """The head's output for B examples; ``answer_type`` is (B, 3)."""

    span: SpanLogits
    answer_type: Tensor
    paragraph: MarkLogits
    sentence: MarkLogits


class HotpotqaHead(nn.Module):
    """Linear layers for spans and, at ``<s>``, the answer type (mean over segments); two at ``<t>`` and ``[s]``."""

    def __init__(self, embed_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.span = SpanHead(embed_dim, dropout)
        self.answer_type = nn.Sequential(nn.Dropout(dropout), nn.Linear(embed_dim, len(AnswerType)))
        self.paragraph, self.sentence = (
            nn.Sequential(
                nn.Dropout(dropout),
                nn.Linear(embed_dim, embed_dim),
                nn.Tanh(),
                nn.Dropout(dropout),
                nn.Linear(embed_dim, 1),
            )
            for _ in range(2)
        )
        initialize(self)

    def forward(
        self, features: Tensor, example: Tensor, num_examples: int, piece: Tensor, paragraph: Tensor, sentence: Tensor
    ) -> HotpotqaLogits:
        kinds = wide(self.answer_type(features[:, 0]))
        return HotpotqaLogits(
            span=self.span(features, example, num_examples, piece),
            answer_type=mean_over_segments(kinds, example, num_examples),
            paragraph=at_marks(self.paragraph, features, example, paragraph),
            sentence=at_marks(self.sentence, features, example, sentence),
        )


_PARTS = ("span", "type", "paragraph", "sentence")


class HotpotqaPredictor:
    """Answers and supporting facts, in the official format, and the scores of paragraphs for the second stage."""

    def __init__(self, folder: Path, split: str) -> None:
        self._ids = HotpotqaSplit.lines(folder, split)
        self._titles = [json.loads(line) for line in HotpotqaSplit.lines(folder, split, "titles")]
        self._split = HotpotqaSplit.open(folder, split)
        self._tokenizer = load_tokenizer(folder)
        self._found: dict[int, tuple[str, list[tuple[str, int]], list[tuple[str, float | None]]]] = {}

    def add(self, numbers: list[int], output: HotpotqaLogits, batch: dict[str, Any]) -> None:
        spans = best_spans(output.span)
        tokens = batch["net_input"]["src_tokens"]
        for row, number in enumerate(numbers):
            answer_type = AnswerType(int(output.answer_type[row].argmax()))
            answer = answer_type.name.lower()
            if answer_type == AnswerType.SPAN:
                answer = self._tokenizer.decode(spans.tokens(row, tokens)).strip()
            counts = self._split.paragraphs(number)[:, 1]
            paragraph = logits_of(output.paragraph, row, len(counts))
            sentence = np.split(logits_of(output.sentence, row, int(counts.sum())), np.cumsum(counts)[:-1])
            titles = self._titles[number]
            facts = [(titles[place], fact) for place, fact in supporting_sentences(paragraph, sentence)]
            read = zip(titles, paragraph.tolist(), strict=True)
            scores = [(title, round(score, 4) if score > -np.inf else None) for title, score in read]
            self._found[number] = answer, facts, scores

    def write(self, path: Path) -> None:
        by_id = {self._ids[number]: self._found[number] for number in sorted(self._found)}
        answers, facts, scores = ({name: value[part] for name, value in by_id.items()} for part in range(3))
        content = {"answer": answers, "sp": facts, PARAGRAPH_SCORES: scores}
        write_lines(path, [json.dumps(content)])  # in ASCII: a lone surrogate in a title has no UTF-8


def logits_of(marks: MarkLogits, example: int, count: int) -> np.ndarray:
    """(count,) the logits of an example's marks, -inf where a mark was not read."""
    values = np.full(count, -np.inf)
    chosen = marks.example == example
    values[marks.number[chosen].numpy()] = marks.logit[chosen].float().numpy()
    return values


def supporting_sentences(paragraph: np.ndarray, sentences: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """Choose the most probable supporting facts that come from exactly two paragraphs, one at least from each."""
    # paragraphs and sentences count as independent: the two largest sums of a paragraph's log-odds and its chosen
    # sentences', which are all with positive log-odds, or else the best one
    chosen: list[np.ndarray] = []
    values = np.full(len(paragraph), -np.inf)
    for number, odds in enumerate(sentences):
        best = np.flatnonzero(odds == odds.max(initial=-np.inf))[:1]
        chosen.append(np.flatnonzero(odds > 0) if (odds > 0).any() else best)
        if len(odds) and odds[best] > -np.inf:
            values[number] = paragraph[number] + odds[chosen[-1]].sum()
    pair = sorted(number for number in np.argsort(-values, kind="stable")[:2].tolist() if values[number] > -np.inf)
    return [(number, int(sentence)) for number in pair for sentence in chosen[number]]


@dataclass
class HotpotqaConfig(DocumentTaskConfig):
    max_question_length: int = option(64, "tokens that longer questions are cut to")
    span_loss_weight: float = option(1.0, "weight of the answer's first and last token")
    type_loss_weight: float = option(1.0, "weight of the kind of answer: span, yes, no")
    paragraph_loss_weight: float = option(1.0, "weight of the relevant paragraphs")
    sentence_loss_weight: float = option(1.0, "weight of the supporting facts")


@register_task("hotpotqa", dataclass=HotpotqaConfig)
class HotpotqaTask(DocumentTask):
    """Finds an answer in several paragraphs, and the sentences that prove it (Longformer, §6.1 and appendix D)."""

    cfg: HotpotqaConfig
    kind = "hotpotqa"
    layout = HotpotqaSplit.layout
    predictor = HotpotqaPredictor
    logged = tuple(f"{part}_{kind}" for kind in ("loss", "accuracy") for part in _PARTS)

    def __init__(self, cfg: HotpotqaConfig, dictionary: Dictionary) -> None:
        super().__init__(cfg, dictionary)
        self.weights = {part: getattr(cfg, f"{part}_loss_weight") for part in _PARTS}
        check_weights(self.weights)

    def build_head(self, embed_dim: int, dropout: float) -> HotpotqaHead:
        return HotpotqaHead(embed_dim, dropout)

    def build_examples(self, folder: Path, split: str, max_segments: int) -> HotpotqaExamples:
        return HotpotqaExamples(
            HotpotqaSplit.open(folder, split),
            **self.reading(max_segments),
            max_question_length=self.cfg.max_question_length,
        )

    def loss(self, output: HotpotqaLogits, target: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted sum of four losses: a span's, the kind's, and the means over paragraphs and over sentences."""
        count = output.span.num_examples
        type_loss, type_sums = choice_loss(output.answer_type, target["answer_type"], UNKNOWN, "type_accuracy")
        parts = {
            "span": span_losses(output.span, target["first"], target["last"])[0].sum(),
            "type": type_loss,
            "paragraph": mark_losses(output.paragraph, target["relevant"], count).sum(),
            "sentence": mark_losses(output.sentence, target["supporting"], count).sum(),
        }
        loss = sum(self.weights[name] * part for name, part in parts.items())
        with torch.no_grad():
            sums = {f"{name}_loss": part.detach() for name, part in parts.items()}
            sums |= type_sums | count_right_spans(output.span, target["first"], target["last"])
            sums |= count_right_marks("paragraph_accuracy", output.paragraph, target["relevant"])
            sums |= count_right_marks("sentence_accuracy", output.sentence, target["supporting"])
        return loss, sums
