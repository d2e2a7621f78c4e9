"""Precision, recall and F1 at thresholds, by hand and against a naive twin."""

from itertools import product

import numpy as np
import pytest

from fairseq_poolingformer.tasks.question_answering.scoring import OperatingPoint, Outcomes, PrecisionRecallCurve
from tests.tasks.question_answering import naive_scores
from tests.tasks.question_answering.random_answers import natural_questions_set


def test_given_thresholds_equal_the_naive_twin():
    for seed, threshold in product(range(10), (-2.0, -1.0, -0.5, 0.1, 1e9)):
        gold, predictions = natural_questions_set(seed, 20)
        outcomes = naive_scores.natural_questions(gold, predictions)["short"]
        found = _curve(*outcomes).at_threshold(threshold)
        assert (found.f1, found.precision, found.recall) == pytest.approx(naive_scores.point_at(outcomes, threshold))
        assert found.threshold == threshold


def _curve(*rows: tuple) -> PrecisionRecallCurve:
    columns = np.array(rows, np.float64).reshape(-1, 4).T
    return PrecisionRecallCurve(Outcomes(columns[0] != 0, columns[1] != 0, columns[2], columns[3]))


def test_curve_by_hand():
    """Answers: right at 3, wrong at 2 with a right one of the same score, none at 1, a false one at 0."""
    curve = _curve((1, 1, 0, 2), (1, 1, 1, 3), (1, 0, 0, 1), (0, 1, 0, 0), (1, 1, 1, 2))
    assert curve.threshold.tolist() == [3, 2, 1, 0]
    assert curve.precision.tolist() == [1, 2 / 3, 2 / 3, 2 / 4]
    assert curve.recall.tolist() == [1 / 4, 2 / 4, 2 / 4, 2 / 4]
    assert curve.best() == OperatingPoint(pytest.approx(4 / 7), 2 / 3, 1 / 2, 2)  # of equal ones the highest threshold
    assert curve.at_precision(0.5) == OperatingPoint(pytest.approx(4 / 7), 2 / 3, 1 / 2, 2)
    assert curve.at_precision(0.9) == OperatingPoint(pytest.approx(2 / 5), 1, 1 / 4, 3)
    assert curve.at_threshold(0.5) == OperatingPoint(pytest.approx(4 / 7), 2 / 3, 1 / 2, 0.5)
    assert curve.at_threshold(4) == OperatingPoint(0, 0, 0, 4)


def test_nothing_right_and_nothing_at_all():
    for curve in (_curve(), _curve((1, 1, 0, 5), (0, 1, 0, 4)), _curve((0, 0, 0, 1))):
        assert curve.best() == OperatingPoint(0, 0, 0, 0)
        assert curve.at_precision(0.5) == OperatingPoint(0, 0, 0, None)
        assert curve.at_threshold(float("-inf")).f1 == 0


def test_infinite_scores():
    curve = _curve((1, 1, 1, float("inf")), (1, 1, 0, float("-inf")), (1, 1, 0, float("-inf")))
    assert curve.threshold.tolist() == [float("inf"), float("-inf")]
    assert curve.best() == OperatingPoint(0.5, 1, 1 / 3, float("inf"))
