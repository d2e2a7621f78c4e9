"""Segments and their paragraphs, by hand and against a loop over tokens."""

import itertools

import numpy as np
import pytest

from fairseq_poolingformer.tasks.question_answering.data import (
    SegmentLimits,
    Segments,
    cut_into_segments,
    keep_negatives,
    paragraph_ids,
    visible_paragraphs,
)


def spans(question_sizes, document_sizes, limits):
    """For each example its segments' (first, end), and for each segment its size."""
    segments = cut_into_segments(np.array(question_sizes), np.array(document_sizes), limits)
    pairs = list(zip(segments.first_token.tolist(), segments.end_token.tolist(), strict=True))
    by_example = [pairs[a:b] for a, b in zip(segments.bounds, segments.bounds[1:], strict=False)]
    return by_example, segments


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (0, [(0, 0)]),
        (1, [(0, 1)]),
        (10, [(0, 10)]),  # exactly the room of 16 - 2 - 4
        (11, [(0, 10), (4, 11)]),
        (14, [(0, 10), (4, 14)]),  # the second reaches the end exactly
        (15, [(0, 10), (4, 14), (8, 15)]),
        (18, [(0, 10), (4, 14), (8, 18)]),
    ],
)
def test_the_last_segment_is_the_first_that_reaches_the_end(document, expected):
    found, segments = spans([2], [document], SegmentLimits(16, doc_stride=4, max_question_length=6))
    assert found == [expected]
    assert segments.size.tolist() == [end - first + 2 + 4 for first, end in expected]
    assert segments.number.tolist() == list(range(len(expected)))


def test_long_questions_are_cut_and_leave_the_rest_to_the_document():
    found, segments = spans([50, 1, 0], [9, 9, 9], SegmentLimits(16, doc_stride=4, max_question_length=6))
    assert found == [[(0, 6), (4, 9)], [(0, 9)], [(0, 9)]]
    assert segments.question_length.tolist() == [6, 1, 0]
    assert segments.example.tolist() == [0, 0, 1, 2]
    assert segments.size.max() <= 16


@pytest.mark.parametrize(
    ("numbers", "message"),
    [((16, 7, 6), "doc_stride 7 would skip"), ((16, 0, 6), "doc_stride must"), ((64, 1, 64), "doc_stride 1 would")],
)
def test_limits_that_lose_tokens_are_refused(numbers, message):
    with pytest.raises(ValueError, match=message):
        SegmentLimits(*numbers)


def test_paragraphs_of_a_segment_equal_a_loop_over_tokens():
    rng = np.random.default_rng(0)
    for _ in range(200):
        cuts = np.unique(rng.integers(0, 40, 8))
        rows = [[a, b, 0, 0, 0] for a, b in itertools.pairwise(cuts) if rng.random() < 0.7]
        rows = np.array(rows, np.int32).reshape(-1, 5)
        first, end = sorted(rng.choice(41, 2, replace=False).tolist())
        seen = [k for k, (a, b, *_) in enumerate(rows.tolist()) if any(first <= t < end for t in range(a, b))]
        begin, stop = visible_paragraphs(rows, first, end)
        assert list(range(begin, stop)) == seen
        expected = [
            next((1 + n for n, k in enumerate(seen) if rows[k, 0] <= token < rows[k, 1]), 0)
            for token in range(first, end)
        ]
        assert paragraph_ids(rows[begin:stop], first, end).tolist() == expected


def test_an_empty_document_has_no_paragraphs():
    rows = np.zeros((0, 5), np.int32)
    assert visible_paragraphs(rows, 0, 0) == (0, 0)
    assert paragraph_ids(rows, 0, 0).tolist() == []
    assert paragraph_ids(rows, 0, 3).tolist() == [0, 0, 0]


def segments_of(examples: int, each: int) -> Segments:
    return cut_into_segments(np.full(examples, 1), np.full(examples, 5 + each), SegmentLimits(10, 1, 4))


def test_negatives_are_drawn_anew_in_each_epoch_and_evenly():
    segments = segments_of(5000, 4)
    chosen = np.arange(len(segments))
    draws = [keep_negatives(segments, chosen, 0.5, seed, epoch) for seed in (1, 2) for epoch in (1, 2, 3)]
    for number, draw in enumerate(draws):
        assert abs(draw.mean() - 0.5) < 0.01
        for other in draws[:number]:
            assert abs((draw == other).mean() - 0.5) < 0.02, "draws depend on one another"
    by_number = [draws[0][segments.number == n].mean() for n in range(4)]
    assert max(abs(share - 0.5) for share in by_number) < 0.03
    assert np.array_equal(keep_negatives(segments, chosen[7::3], 0.5, 1, 1), draws[0][7::3]), "of each segment alone"
    assert keep_negatives(segments, chosen, 1.0, 1, 1).all()
    assert not keep_negatives(segments, chosen, 0.0, 1, 1).any()
    tenth = keep_negatives(segments, chosen, 0.1, 1, 1)
    assert abs(tenth.mean() - 0.1) < 0.01
