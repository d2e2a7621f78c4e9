"""Answers that are pieces of a long document: their loss, and the best one of an example.

A document may be cut into several segments, and it may hold the answer in several places. The tokens of all segments of
an example compete: there is one softmax for the first token of the answer, and one for the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairseq_poolingformer.tasks.question_answering.answers import best_span_from_each_start
from fairseq_poolingformer.tasks.question_answering.labels import MAX_ANSWER_LENGTH


@dataclass(frozen=True)
class SpanLogits:
    """Logits of the tokens of N segments, which belong to B examples.

    Args:
        start, end: (N, T) in float32 or float64, of an answer's first and last token.
        piece: (N, T) int64: a span lies in one piece of its segment, whose tokens have the same number; 0 at tokens
            that no span may hold.
        example: (N,) int64, the example of each segment.
        num_examples: B.
    """

    start: Tensor
    end: Tensor
    piece: Tensor
    example: Tensor
    num_examples: int


@dataclass(frozen=True)
class BestSpans:
    """The best span of each of B examples.

    Args:
        score: (B,) start and end logit together; -inf where an example has no token to choose.
        segment: (B,) row of the segment.
        first, last: (B,) positions in the segment, both inclusive.
    """

    score: Tensor
    segment: Tensor
    first: Tensor
    last: Tensor


def log_sum_exp_by_example(values: Tensor, mask: Tensor, example: Tensor, num_examples: int) -> Tensor:
    """Sum exponentials over all marked tokens of each example.

    Args:
        values: (N, T).
        mask: (N, T) bool.
        example: (N,) int64, in 0 … B − 1.
        num_examples: B.

    Returns:
        (B,) the logs of the sums; the lowest number of the dtype where nothing is marked.
    """
    lowest = torch.finfo(values.dtype).min  # -inf would make gradients NaN
    rows = values.masked_fill(~mask, lowest).logsumexp(1)
    largest = rows.new_full((num_examples,), lowest).scatter_reduce(0, example, rows.detach(), "amax")
    sums = torch.zeros_like(largest).index_add(0, example, (rows - largest[example]).exp())
    return sums.log() + largest


def span_losses(logits: SpanLogits, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """Compute each example's loss when any of several spans is right (Clark and Gardner 2017, §2.2).

    ``(−log Σ_{right first tokens} p(first) − log Σ_{right last tokens} p(last)) / 2``, the probabilities over all
    tokens of an example that a span may hold. With one right span it is the loss of BERT's question answering.

    Args:
        logits: of the segments.
        first, last: (N, T), not 0 at the first and at the last tokens of right spans.

    Returns:
        (B,) losses, 0 where an example has no right span; (B,) bool, True where it has one.
    """
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


@torch.no_grad()
def best_spans(logits: SpanLogits, max_length: int = MAX_ANSWER_LENGTH) -> BestSpans:
    """Find the span of each example with the largest sum of start and end logit; the first of several equal ones.

    Args:
        logits: of the segments.
        max_length: tokens of a span at most.
    """
    each, length = best_span_from_each_start(logits.start, logits.end, logits.piece, max_length)
    score, first = each.max(1)
    last = first + length.gather(1, first.unsqueeze(1)).squeeze(1)
    numbers = torch.arange(logits.num_examples, device=score.device).unsqueeze(1)
    best, segment = score.masked_fill(logits.example != numbers, -torch.inf).max(1)
    return BestSpans(best, segment, first[segment], last[segment])


@torch.no_grad()
def count_right_spans(logits: SpanLogits, first: Tensor, last: Tensor) -> dict[str, Tensor]:
    """Count the examples whose best span is a right one, among those that have one: see :func:`mark_spans`."""
    found = best_spans(logits)
    right = first[found.segment, found.first].bitwise_right_shift(found.last - found.first) & 1
    has_right = span_losses(logits, first, last)[1]
    return {"_span_correct": (right.bool() & has_right).sum(), "_span_total": has_right.sum()}


def mark_spans(spans: np.ndarray, begin: int, end: int, offset: int, size: int) -> dict[str, np.ndarray]:
    """Make the targets of a segment that holds a part of a document.

    Args:
        spans: (A, 2) half-open right spans of the document's tokens; those that the segment does not hold whole do not
            count.
        begin, end: the document tokens of the segment.
        offset: the position of the first of them in the segment.
        size: tokens of the segment.

    Returns:
        ``first`` and ``last``, (size,) int64, 0 but at the first and at the last tokens of right spans. Bit d of
        ``first`` says that a right span ends d tokens later, bit 62 that one ends still later; ``last`` is 1.
    """
    held = spans[(spans[:, 0] >= begin) & (spans[:, 1] <= end)] - begin + offset
    first, last = np.zeros((2, size), np.int64)
    np.bitwise_or.at(first, held[:, 0], 1 << np.minimum(held[:, 1] - held[:, 0] - 1, 62))
    last[held[:, 1] - 1] = 1
    return {"first": first, "last": last}
