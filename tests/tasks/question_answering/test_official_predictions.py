"""One prediction in the official formats."""

import pytest

from fairseq_poolingformer.tasks.question_answering.official import (
    NO_SPAN,
    NaturalQuestionsPrediction,
    Span,
    TydiqaPrediction,
)


def test_missing_answers_are_none():
    scores = {"long_answer_score": 1, "short_answers_score": 2}
    assert NaturalQuestionsPrediction.from_json({"example_id": 1, **scores}) == NaturalQuestionsPrediction(
        1, NO_SPAN, 1.0, (), 2.0
    )
    scores = {"passage_answer_score": 1, "minimal_answer_score": 2}
    assert TydiqaPrediction.from_json({"example_id": 1, "language": "thai", **scores}) == TydiqaPrediction(
        1, "thai", -1, 1.0, NO_SPAN, 2.0
    )


def test_predictions_that_contradict_themselves():
    with pytest.raises(ValueError, match="must be none"):
        NaturalQuestionsPrediction(1, short_answers=(Span(1, 2),), yes_no_answer="YES")
    with pytest.raises(ValueError, match="long_answer_score is NaN"):
        NaturalQuestionsPrediction(1, long_answer_score=float("nan"))
    with pytest.raises(ValueError, match="one of NONE, YES, NO"):
        TydiqaPrediction(1, "thai", yes_no_answer="none")
