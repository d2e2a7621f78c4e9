"""Scores of random answers, by seeds and sizes that hypothesis chooses, against the naive twins."""

import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.tasks.question_answering import naive_scores
from tests.tasks.question_answering.random_answers import MAKERS, write_set
from tests.tasks.question_answering.test_scoring import figures


@pytest.mark.parametrize("kind", MAKERS)
@given(seed=st.integers(0, 2**32), examples=st.integers(1, 30))
def test_best_points_are_the_naive_twins(kind, seed, examples):
    gold, predictions = MAKERS[kind](seed, examples)
    with tempfile.TemporaryDirectory() as folder:
        found = figures(kind, *write_set(Path(folder), gold, predictions))
    found = found if kind == "natural_questions" else found["all"]
    for name, outcomes in getattr(naive_scores, kind)(gold, predictions).items():
        f1, precision, recall, threshold = (
            found[f"{name}-best-threshold{key}"] for key in ("-f1", "-precision", "-recall", "")
        )
        assert f1 == pytest.approx(naive_scores.best_point(outcomes)[0])
        # thresholds of equal F1 may be told apart by rounding alone
        at_ours = naive_scores.point_at(outcomes, threshold) if f1 else (0.0, 0.0, 0.0)
        assert (f1, precision, recall) == pytest.approx(at_ours)
