"""The output layers of question answering: logits of spans, paragraphs and answer types from an encoder's features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_poolingformer.tasks.question_answering.answers import AnswerLogits
from fairseq_poolingformer.tasks.question_answering.labels import AnswerType
from fairseq_poolingformer.tasks.shared.heads import initialize, wide


class QuestionAnsweringHead(nn.Module):
    """Poolingformer's output layers for question answering (ICML 2021, §3.2).

    The span layer reads each token; the paragraph layer reads the mean of a paragraph's tokens, and ``<s>`` for "no
    paragraph"; the type layer reads the mean of the paragraphs, or ``<s>`` where there are none. Sums are taken in
    float32 whatever the features' dtype.

    Args:
        embed_dim: width C of the features.
        dropout: applied to what each linear layer reads.
    """

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
        """Compute the logits of a batch of segments.

        Args:
            features: (B, T, C), ``<s>`` first.
            paragraph_ids: (B, T) int64, p at the tokens of a row's p-th paragraph, counted from 1, and 0 elsewhere.
            span_mask: (B, T) True where a span may begin or end, ``<s>`` included.
            num_paragraphs: the largest number P in ``paragraph_ids``; None asks the device, which makes the CPU wait.

        Returns:
            The logits; those of paragraphs are (B, P + 1).
        """
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
    """Average the tokens of each paragraph, without a (B, T, P) mask.

    Args:
        features: (B, T, C).
        paragraph_ids: (B, T) int64, 0 at tokens of no paragraph, else 1 to P.
        num_paragraphs: P.

    Returns:
        (B, P, C) means in float32 (float64 for float64), zero for a paragraph that a row lacks; and (B, P), True at the
        paragraphs that a row has.
    """
    batch, _, width = features.shape
    bins = num_paragraphs + 1
    rows = torch.arange(batch, device=features.device).unsqueeze(1) * bins
    index = (rows + paragraph_ids).flatten()
    values = wide(features).flatten(0, 1)
    sums = values.new_zeros(batch * bins, width).index_add(0, index, values)
    counts = values.new_zeros(batch * bins).index_add(0, index, torch.ones_like(values[:, 0]))
    sums, counts = sums.view(batch, bins, width)[:, 1:], counts.view(batch, bins)[:, 1:]
    return sums / counts.clamp(min=1).unsqueeze(-1), counts > 0
