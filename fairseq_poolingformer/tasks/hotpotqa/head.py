"""The output layers of HotpotQA: spans, the kind of answer, relevant paragraphs, supporting facts."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from fairseq_poolingformer.tasks.hotpotqa.examples import AnswerType
from fairseq_poolingformer.tasks.shared.heads import (
    MarkLogits,
    SpanHead,
    SpanLogits,
    at_marks,
    initialize,
    mean_over_segments,
    wide,
)


@dataclass(frozen=True)
class HotpotqaLogits:
    """The head's output for B examples; ``answer_type`` is (B, 3)."""

    span: SpanLogits
    answer_type: Tensor
    paragraph: MarkLogits
    sentence: MarkLogits


class HotpotqaHead(nn.Module):
    """A linear layer for spans, one at ``<s>`` for the kind of answer, two layers at ``<t>`` and at ``[s]`` each.

    The logits of the kind of answer are averaged over an example's segments (Longformer, appendix D).

    ``dropout`` is applied to what each linear layer reads.
    """

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
        """Compute the logits of a batch."""
        kinds = wide(self.answer_type(features[:, 0]))
        return HotpotqaLogits(
            span=self.span(features, example, num_examples, piece),
            answer_type=mean_over_segments(kinds, example, num_examples),
            paragraph=at_marks(self.paragraph, features, example, paragraph),
            sentence=at_marks(self.sentence, features, example, sentence),
        )
