"""The parts that the output layers of the tasks and their losses share: choices, spans of answers, marks.

The tokens of all segments of an example compete: one softmax for the first token of the answer, one for the last.
A head's first arguments are ``features``, (N, T, C) of the segments, ``<s>`` first; ``example``, (N,) int64, the
example of each segment; and ``num_examples``, B. Logits are in float32, in float64 where the features are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_poolingformer.tasks.shared.examples import MAX_ANSWER_LENGTH


def initialize(head: nn.Module) -> None:
    """Draw the weights of linear layers and embeddings from N(0, 0.02²), as BERT's; biases are 0."""
    for module in head.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


def wide(x: Tensor) -> Tensor:
    """In float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def mean_over_segments(values: Tensor, example: Tensor, num_examples: int) -> Tensor:
    """(B, C) the means over each example's segments."""
    sums = values.new_zeros(num_examples, values.size(1)).index_add(0, example, values)
    return sums / torch.bincount(example, minlength=num_examples).unsqueeze(1)


def choice_loss(logits: Tensor, choice: Tensor, unknown: int, name: str) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the cross entropy of choices, and count the right ones."""
    loss = F.cross_entropy(logits, choice, ignore_index=unknown, reduction="sum")
    known = choice != unknown
    right = (logits.argmax(-1) == choice) & known
    return loss, {f"_{name}_correct": right.sum(), f"_{name}_total": known.sum()}


@dataclass(frozen=True)
class SpanLogits:
    """Logits of the tokens of N segments, which belong to B examples."""

    start: Tensor
    end: Tensor
    piece: Tensor
    example: Tensor
    num_examples: int


class SpanHead(nn.Module):
    """Logits of an answer's first and last token: a linear layer at every token (Devlin et al. 2019)."""

    def __init__(self, embed_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.span = nn.Linear(embed_dim, 2)
        initialize(self)

    def forward(self, features: Tensor, example: Tensor, num_examples: int, piece: Tensor) -> SpanLogits:
        """Compute the logits of a batch; ``piece`` is that of :class:`SpanLogits`."""
        start, end = wide(self.span(self.dropout(features))).unbind(-1)
        return SpanLogits(start, end, piece, example, num_examples)


@dataclass(frozen=True)
class BestSpans:
    """The best span of each of B examples."""

    score: Tensor
    segment: Tensor
    first: Tensor
    last: Tensor

    def tokens(self, example: int, segments: Tensor) -> list[int]:
        """The span's tokens, of (N, T) tokens of the segments; none where there is no token to choose."""
        chosen = segments[self.segment[example], self.first[example] : self.last[example] + 1]
        return chosen.tolist() if self.score[example] > -torch.inf else []


def log_sum_exp_by_example(values: Tensor, mask: Tensor, example: Tensor, num_examples: int) -> Tensor:
    """Sum exponentials over all marked tokens of each example."""
    lowest = torch.finfo(values.dtype).min  # -inf would make gradients NaN
    rows = values.masked_fill(~mask, lowest).logsumexp(1)
    largest = rows.new_full((num_examples,), lowest).scatter_reduce(0, example, rows.detach(), "amax")
    sums = torch.zeros_like(largest).index_add(0, example, (rows - largest[example]).exp())
    return sums.log() + largest


def span_losses(logits: SpanLogits, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """``(−log Σ p(right first tokens) − log Σ p(right last tokens)) / 2`` an example (Clark and Gardner 2017, §2.2)."""
    allowed = logits.piece > 0
    has_right = torch.zeros(logits.num_examples, dtype=torch.bool, device=allowed.device)
    has_right = has_right.index_fill(0, logits.example[(first != 0).any(1)], True)
    loss = torch.zeros(logits.num_examples, dtype=logits.start.dtype, device=allowed.device)
    for values, right in ((logits.start, first), (logits.end, last)):
        among = (logits.example, logits.num_examples)
        loss = (
            loss + log_sum_exp_by_example(values, allowed, *among) - log_sum_exp_by_example(values, right != 0, *among)
        )
    return torch.where(has_right, loss / 2, 0.0), has_right


def best_span_from_each_start(start: Tensor, end: Tensor, region: Tensor, max_length: int) -> tuple[Tensor, Tensor]:
    """Find the best span that begins at each token and ends in its region."""
    reach = (0, max_length - 1)
    is_same = F.pad(region, reach).unfold(1, max_length, 1) == region.unsqueeze(2)
    ends = F.pad(end, reach, value=-torch.inf).unfold(1, max_length, 1)
    best_end, distance = ends.masked_fill(~is_same, -torch.inf).max(2)
    return (start + best_end).masked_fill(region == 0, -torch.inf), distance


@torch.no_grad()
def best_spans(logits: SpanLogits, max_length: int = MAX_ANSWER_LENGTH) -> BestSpans:
    """Find the span of each example with the largest sum of start and end logit; the first of several equal ones."""
    each, length = best_span_from_each_start(logits.start, logits.end, logits.piece, max_length)
    score, first = each.max(1)
    last = first + length.gather(1, first.unsqueeze(1)).squeeze(1)
    numbers = torch.arange(logits.num_examples, device=score.device).unsqueeze(1)
    best, segment = score.masked_fill(logits.example != numbers, -torch.inf).max(1)
    return BestSpans(best, segment, first[segment], last[segment])


@torch.no_grad()
def count_right_spans(logits: SpanLogits, first: Tensor, last: Tensor) -> dict[str, Tensor]:
    """Count the examples whose best span is a right one, among those that have one: see :func:`mark_spans`."""
    best = best_spans(logits)
    right = first[best.segment, best.first].bitwise_right_shift(best.last - best.first) & 1
    has_right = span_losses(logits, first, last)[1]
    return {"_span_accuracy_correct": (right.bool() & has_right).sum(), "_span_accuracy_total": has_right.sum()}


@dataclass(frozen=True)
class MarkLogits:
    """Logits of M marks of one kind."""

    logit: Tensor
    row: Tensor
    place: Tensor
    example: Tensor
    number: Tensor


def at_marks(layers: Callable[[Tensor], Tensor], features: Tensor, example: Tensor, marks: Tensor) -> MarkLogits:
    """Compute a logit at every mark of one kind."""
    row, place = marks.nonzero(as_tuple=True)
    logit = wide(layers(features[row, place]).squeeze(-1))
    return MarkLogits(logit, row, place, example[row], marks[row, place] - 1)


def mark_losses(marks: MarkLogits, target: Tensor, num_examples: int) -> Tensor:
    """(B,) the mean binary cross entropy of each example's marks, 0 where it has none; ``target`` is (N, T)."""
    wanted = target[marks.row, marks.place].to(marks.logit.dtype)
    losses = F.binary_cross_entropy_with_logits(marks.logit, wanted, reduction="none")
    count = torch.bincount(marks.example, minlength=num_examples).clamp(min=1)
    return losses.new_zeros(num_examples).index_add(0, marks.example, losses) / count


def count_right_marks(name: str, marks: MarkLogits, target: Tensor) -> dict[str, Tensor]:
    """Count the marks whose logit has the right sign, as ``_NAME_correct`` and ``_NAME_total``."""
    right = (marks.logit > 0) == (target[marks.row, marks.place] > 0)
    return {f"_{name}_correct": right.sum(), f"_{name}_total": torch.ones_like(right).sum()}
