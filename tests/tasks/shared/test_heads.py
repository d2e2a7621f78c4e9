import itertools
import math

import numpy as np
import pytest
import torch

from fairseq_poolingformer.tasks.shared.examples import mark_spans
from fairseq_poolingformer.tasks.shared.heads import SpanLogits, best_spans, count_right_spans, span_losses


def random_batch(seed, dtype=torch.float64):
    """Logits of five segments of three examples, which come in any order, with pieces and right tokens."""
    generator = torch.Generator().manual_seed(seed)
    start, end = torch.randn(2, 5, 9, generator=generator, dtype=dtype) * 3
    piece = torch.randint(0, 4, (5, 9), generator=generator).sort(1)[0]
    starts, ends = ((torch.rand(5, 9, generator=generator) < 0.2) & (piece > 0) for _ in range(2))
    ends |= starts  # as many examples have the one as the other
    example = torch.tensor([2, 0, 0, 1, 2])
    return SpanLogits(start.requires_grad_(), end.requires_grad_(), piece, example, 3), starts.long(), ends.long()


def naive_losses(logits, starts, ends):
    """The definition: minus the log of the right tokens' share of all exponentials."""
    losses = []
    for number in range(logits.num_examples):
        total = 0.0
        for values, right in ((logits.start, starts), (logits.end, ends)):
            above = below = 0.0
            for row, place in itertools.product(range(5), range(9)):
                if logits.example[row] == number and logits.piece[row, place] > 0:
                    weight = math.exp(values[row, place].detach())
                    below += weight
                    above += weight if right[row, place] else 0.0
            if above == 0.0:
                break
            total -= math.log(above / below) / 2
        else:
            losses.append(total)
            continue
        losses.append(0.0)
    return losses


def test_losses_equal_the_naive_twin():
    outcomes = set()
    for seed in range(30):
        logits, starts, ends = random_batch(seed)
        losses, has_right = span_losses(logits, starts, ends)
        assert losses.tolist() == pytest.approx(naive_losses(logits, starts, ends))
        assert [loss > 0 for loss in naive_losses(logits, starts, ends)] == has_right.tolist()
        outcomes |= set(has_right.tolist())
    assert outcomes == {True, False}


def test_gradients_are_those_of_finite_differences():
    logits, starts, ends = random_batch(3)

    def total(start, end):
        return span_losses(SpanLogits(start, end, logits.piece, logits.example, 3), starts, ends)[0]

    assert torch.autograd.gradcheck(total, (logits.start, logits.end))


def test_gradients_stay_finite_without_any_right_token_or_any_token():
    logits, starts, ends = random_batch(0, torch.float32)
    for piece in (logits.piece, torch.zeros_like(logits.piece)):
        batch = SpanLogits(logits.start, logits.end, piece, logits.example, 3)
        losses, has_right = span_losses(batch, torch.zeros_like(starts), ends)
        losses.sum().backward()
        assert not losses.any()
        assert not has_right.any()
        assert not logits.start.grad.any()


@pytest.mark.parametrize("max_length", [1, 3, 30])
def test_best_spans_equal_the_naive_twin(max_length):
    for seed in range(30):
        logits, _, _ = random_batch(seed)
        chosen = best_spans(logits, max_length)
        for number in range(3):
            spans = [
                ((logits.start[row, i] + logits.end[row, j]).item(), row, i, j)
                for row in range(5)
                for i in range(9)
                for j in range(i, min(9, i + max_length))
                if logits.example[row] == number and logits.piece[row, i] == logits.piece[row, j] > 0
            ]
            best = max(spans, default=(-math.inf,))
            assert chosen.score[number] == best[0]
            if spans:
                assert (chosen.segment[number], chosen.first[number], chosen.last[number]) == best[1:]


def test_a_right_span_is_counted_and_not_the_ends_of_two():
    zeros = torch.zeros(3, 5, dtype=torch.float64)
    example = torch.tensor([0, 1, 1])
    start, end = zeros.clone(), zeros.clone()
    start[0, 1] = end[0, 2] = start[2, 3] = end[2, 3] = 5.0
    logits = SpanLogits(start, end, torch.ones(3, 5, dtype=torch.int64), example, 2)
    starts, ends = torch.zeros(2, 3, 5, dtype=torch.int64)
    starts[0, 1], ends[0, 2] = 2, 1

    def counts():
        return {name: int(x) for name, x in count_right_spans(logits, starts, ends).items()}

    assert counts() == {"_span_accuracy_correct": 1, "_span_accuracy_total": 1}
    starts[1, 3] = ends[1, 3] = 1  # in the other segment of the second example
    starts[0, 0], starts[0, 1], ends[0, 1] = 4, 1, 1  # the first example's span begins and ends as two right ones
    assert counts() == {"_span_accuracy_correct": 0, "_span_accuracy_total": 2}


def test_marks_are_those_of_spans_that_the_segment_holds_whole():
    spans = np.array([(0, 2), (3, 4), (3, 6), (5, 7), (6, 9), (8, 9)])
    marked = mark_spans(spans, begin=3, end=8, offset=4, size=10)
    assert np.flatnonzero(marked["first"]).tolist() == [4, 6]  # 3 and 5
    assert np.flatnonzero(marked["last"]).tolist() == [4, 6, 7]  # 3, 5 and 6
    assert marked["first"][[4, 6]].tolist() == [0b101, 0b10]  # a token and three tokens long; two
    assert mark_spans(np.array([(0, 90)]), 0, 90, 0, 90)["first"][0] == 1 << 62
    assert not mark_spans(np.zeros((0, 2), np.int64), 0, 3, 1, 5)["first"].any()
