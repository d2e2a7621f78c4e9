"""The output layers of HotpotQA: spans, the kind of answer, relevant paragraphs, supporting facts."""

from __future__ import annotations

from torch import Tensor, nn

from fairseq_poolingformer.tasks.hotpotqa.examples import AnswerType, HotpotqaLogits, MarkLogits
from fairseq_poolingformer.tasks.shared.heads import initialize, mean_over_segments, wide
from fairseq_poolingformer.tasks.triviaqa.head import TriviaqaHead


class HotpotqaHead(nn.Module):
    """A linear layer for spans, one at ``<s>`` for the kind of answer, two layers at ``<t>`` and at ``[s]`` each.

    The logits of the kind of answer are averaged over an example's segments (Longformer, appendix D).

    Args:
        embed_dim: width C of the features.
        dropout: applied to what each linear layer reads.
    """

    def __init__(self, embed_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.span = TriviaqaHead(embed_dim, dropout)
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
        """Compute the logits of a batch of B examples with N segments.

        Args:
            features: (N, T, C), ``<s>`` first.
            example: (N,) int64, the example of each segment.
            num_examples: B.
            piece: (N, T) int64, see :class:`~fairseq_poolingformer.tasks.shared.answer_spans.SpanLogits`.
            paragraph, sentence: (N, T) int64, k at the mark of an example's k-th paragraph or sentence, counted from 1,
                and 0 elsewhere.
        """
        kinds = wide(self.answer_type(features[:, 0]))
        return HotpotqaLogits(
            span=self.span(features, example, num_examples, piece),
            answer_type=mean_over_segments(kinds, example, num_examples),
            paragraph=_at_marks(self.paragraph, features, example, paragraph),
            sentence=_at_marks(self.sentence, features, example, sentence),
        )


def _at_marks(layers: nn.Module, features: Tensor, example: Tensor, marks: Tensor) -> MarkLogits:
    row, place = marks.nonzero(as_tuple=True)
    logit = wide(layers(features[row, place]).squeeze(-1))
    return MarkLogits(logit, row, place, example[row], marks[row, place] - 1)
