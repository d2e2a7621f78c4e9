"""The output layers of question answering, and the choice of one answer for each example from their logits.

The heads count as independent: an answer in paragraph p has the log-odds

    log P(p) / P(no paragraph) + max(yes, no, long only, short + span)

against "no answer". Here yes, no, long only and short are the log-odds of the answer types against null, and span is
the log-odds of start and end against "no span", of the best span inside p. The largest of these over paragraphs, then
over segments, chooses the long and the short answer together, so that one lies in the other. The official evaluations
compare a score of each with a threshold: the long answer's score is the log-odds of its paragraph plus those of any
answer type against null; the short answer's is the log-odds of its span and type against the types without a short
answer, null and long only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_poolingformer.tasks.question_answering.data import AnswerType
from fairseq_poolingformer.tasks.shared.examples import MAX_ANSWER_LENGTH
from fairseq_poolingformer.tasks.shared.heads import best_span_from_each_start, initialize, wide


class QuestionAnsweringHead(nn.Module):
    """Poolingformer's output layers for question answering (ICML 2021, §3.2); sums are in float32."""

    # span: each token; paragraph: the mean of its tokens, <s> for none; type: the mean of the paragraphs, or <s>

    def __init__(self, embed_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.span = nn.Linear(embed_dim, 2)
        self.paragraph = nn.Linear(embed_dim, 1)
        self.answer_type = nn.Linear(embed_dim, len(AnswerType))
        initialize(self)

    def forward(
        self, features: Tensor, paragraph_ids: Tensor, span_mask: Tensor, num_paragraphs: int | None = None
    ) -> AnswerLogits:
        if num_paragraphs is None:
            num_paragraphs = int(paragraph_ids.max())
        start, end = self.span(self.dropout(features)).float().unbind(-1)
        means, is_there = paragraph_means(features, paragraph_ids, num_paragraphs)
        first = features[:, :1]
        candidates = torch.cat([first, means.to(features.dtype)], dim=1)
        paragraph = self.paragraph(self.dropout(candidates)).float().squeeze(-1)
        count = is_there.sum(1, keepdim=True)
        document = torch.where(count > 0, means.sum(1) / count.clamp(min=1), first.squeeze(1).to(means.dtype))
        answer_type = self.answer_type(self.dropout(document.to(features.dtype))).float()
        is_candidate = F.pad(is_there, (1, 0), value=True)
        return AnswerLogits(
            start=start.masked_fill(~span_mask, -torch.inf),
            end=end.masked_fill(~span_mask, -torch.inf),
            paragraph=paragraph.masked_fill(~is_candidate, -torch.inf),
            answer_type=answer_type,
        )


def paragraph_means(features: Tensor, paragraph_ids: Tensor, num_paragraphs: int) -> tuple[Tensor, Tensor]:
    """Average the tokens of each paragraph, without a (B, T, P) mask."""
    batch, _, width = features.shape
    bins = num_paragraphs + 1
    rows = torch.arange(batch, device=features.device).unsqueeze(1) * bins
    index = (rows + paragraph_ids).flatten()
    values = wide(features).flatten(0, 1)
    sums = values.new_zeros(batch * bins, width).index_add(0, index, values)
    counts = values.new_zeros(batch * bins).index_add(0, index, torch.ones_like(values[:, 0]))
    sums, counts = sums.view(batch, bins, width)[:, 1:], counts.view(batch, bins)[:, 1:]
    return sums / counts.clamp(min=1).unsqueeze(-1), counts > 0


@dataclass(frozen=True)
class AnswerLogits:
    """Logits of a batch of segments, in float32; -inf where a row has no such token or paragraph."""

    start: Tensor
    end: Tensor
    paragraph: Tensor
    answer_type: Tensor


@dataclass(frozen=True)
class SegmentAnswers:
    """The best answer of each segment of a batch; scores are natural log-odds."""

    score: Tensor
    paragraph: Tensor
    start: Tensor
    end: Tensor
    long_score: Tensor
    span_score: Tensor
    yes_score: Tensor
    no_score: Tensor


def mean_log_probabilities(logits: Sequence[AnswerLogits]) -> AnswerLogits:
    """The log of the mean probabilities of an ensemble's models, or of a single one, for the same segments."""

    def mean(name: str) -> Tensor:
        each = torch.stack([getattr(one, name).float().log_softmax(-1) for one in logits])
        return each.logsumexp(0) - math.log(len(logits))

    return AnswerLogits(*(mean(name) for name in ("start", "end", "paragraph", "answer_type")))


def best_answers(
    log_probs: AnswerLogits,
    paragraph_ids: Tensor,
    span_mask: Tensor,
    has_text: Tensor,
    document_has_paragraphs: Tensor,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> SegmentAnswers:
    """Choose the best answer of each segment."""
    if max_answer_length < 1:
        raise ValueError(f"max_answer_length must be at least 1 token, got {max_answer_length}")
    # a span stays inside its paragraph; a document without paragraphs counts as one, number 1
    everywhere = span_mask.long()
    everywhere[:, 0] = 0
    region = torch.where(document_has_paragraphs.unsqueeze(1), paragraph_ids, everywhere)
    begin = _log_odds(log_probs.start).masked_fill(~has_text, -torch.inf)
    span, length = best_span_from_each_start(begin, _log_odds(log_probs.end), region, max_answer_length)
    paragraph = _paragraph_odds(log_probs.paragraph, document_has_paragraphs)
    best_span = torch.full_like(paragraph, -torch.inf).scatter_reduce(1, region, span, "amax")
    types = _log_odds(log_probs.answer_type)
    short, yes, no, long = types[:, 1:].unbind(1)

    no_short_answer = F.softplus(long)  # log of 1 + exp(long): null or long only
    without_span = torch.stack([yes, no, long], 1).amax(1, keepdim=True)
    joint = paragraph + torch.maximum(without_span, short.unsqueeze(1) + best_span)
    score, chosen = joint.masked_fill(best_span == -torch.inf, -torch.inf).max(1)
    span_score, start = span.masked_fill(region != chosen.unsqueeze(1), -torch.inf).max(1)
    return SegmentAnswers(
        score=score,
        paragraph=chosen,
        start=start,
        end=start + length.gather(1, start.unsqueeze(1)).squeeze(1),
        long_score=paragraph.gather(1, chosen.unsqueeze(1)).squeeze(1) + types[:, 1:].logsumexp(1),
        span_score=span_score + short - no_short_answer,
        yes_score=yes - no_short_answer,
        no_score=no - no_short_answer,
    )


def _log_odds(log_probs: Tensor) -> Tensor:
    """(B, N) log-odds against the first column."""
    return log_probs - log_probs[:, :1]


def _paragraph_odds(log_probs: Tensor, document_has_paragraphs: Tensor) -> Tensor:
    """(B, max(P, 1) + 1) log-odds of each paragraph, -inf where a row lacks it; 0 at 1 where the document has none."""
    odds = F.pad(_log_odds(log_probs), (0, 1 if log_probs.size(1) == 1 else 0), value=-torch.inf)
    odds[:, 0] = -torch.inf
    odds[:, 1] = odds[:, 1].masked_fill(~document_has_paragraphs, 0.0)
    return odds


ANSWER_DTYPE = np.dtype(
    [
        *((name, np.float32) for name in ("score", "long_score", "span_score", "yes_score", "no_score")),
        *((name, np.int32) for name in ("paragraph", "first_token", "end_token")),
    ]
)


class BestAnswers:
    """The best answer so far of each example: (n,) ``records`` of :data:`ANSWER_DTYPE`, ``score`` -inf for none."""

    def __init__(self, num_examples: int) -> None:
        self.records = np.zeros(num_examples, ANSWER_DTYPE)
        self.records["score"] = -np.inf
        for name in ("paragraph", "first_token", "end_token"):
            self.records[name] = -1

    def add(
        self, answers: SegmentAnswers, example: np.ndarray, first_token: np.ndarray, batch: dict[str, Tensor]
    ) -> None:
        """Compare the answers of a batch of segments with the best ones so far."""
        records = np.zeros(len(example), ANSWER_DTYPE)
        for name in ("score", "long_score", "span_score", "yes_score", "no_score"):
            records[name] = _numpy(getattr(answers, name))
        if np.isnan(records["score"]).any():
            raise ValueError(
                f"the model's output for example {int(example[np.isnan(records['score']).argmax()])} is NaN; "
                "in fp16 numbers can overflow: use bf16 or fp32"
            )
        row = _numpy(batch["first_paragraph"]) + _numpy(answers.paragraph) - 1
        records["paragraph"] = np.where(_numpy(batch["document_has_paragraphs"]), row, -1)
        shift = first_token - _numpy(batch["document_start"])
        records["first_token"] = _numpy(answers.start) + shift
        records["end_token"] = _numpy(answers.end) + shift + 1
        ascending = np.argsort(records["score"], kind="stable")
        records, example = records[ascending], example[ascending]
        better = records["score"] > self.records["score"][example]
        self.records[example[better]] = records[better]  # scores ascend, so an example's best segment is written last


def _numpy(x: Tensor) -> np.ndarray:
    return x.cpu().numpy()
