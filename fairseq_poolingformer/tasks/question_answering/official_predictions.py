"""Predictions as the official evaluations of Natural Questions and TyDi QA read them.

Natural Questions: nq_eval.py of github.com/google-research-datasets/natural-questions. TyDi QA: tydi_eval.py of
github.com/google-research-datasets/tydiqa.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from fairseq_poolingformer.tasks.question_answering.spans import NO_SPAN, Span, natural_questions_span, tydiqa_span
from fairseq_poolingformer.text.json_values import (
    YES_NO_ANSWERS,
    as_object,
    example_id_of,
    integer_of,
    list_of,
    number_of,
    text_of,
    yes_no_of,
)

NATURAL_QUESTIONS = "natural_questions"
TYDIQA = "tydiqa"


@dataclass(frozen=True)
class NaturalQuestionsPrediction:
    """One example's answers.

    Attributes:
        example_id: as in the gold data.
        long_answer: a long-answer candidate, or ``NO_SPAN``.
        long_answer_score: the higher, the surer; below the evaluation's threshold the answer counts as none.
        short_answers: the spans that together are the short answer; empty for none.
        short_answers_score: of the short answer, whether spans, yes or no.
        yes_no_answer: ``"NONE"``, ``"YES"`` or ``"NO"``; with yes or no there is no short span.

    Raises:
        ValueError: a score is NaN, or ``yes_no_answer`` is another value or comes with a span.
    """

    example_id: int | str
    long_answer: Span = NO_SPAN
    long_answer_score: float = 0.0
    short_answers: tuple[Span, ...] = ()
    short_answers_score: float = 0.0
    yes_no_answer: str = "NONE"

    def __post_init__(self) -> None:
        _check_scores(long_answer_score=self.long_answer_score, short_answers_score=self.short_answers_score)
        _check_yes_no(self.yes_no_answer, "short_answers", self.short_answers)

    def to_json(self) -> dict[str, object]:
        """Return the object for the official file's list of predictions."""
        return {
            "example_id": self.example_id,
            "long_answer": asdict(self.long_answer),
            "long_answer_score": self.long_answer_score,
            "short_answers": [asdict(span) for span in self.short_answers],
            "short_answers_score": self.short_answers_score,
            "yes_no_answer": self.yes_no_answer,
        }

    @staticmethod
    def from_json(value: object) -> NaturalQuestionsPrediction:
        """Read an object of the official file. A missing answer is no answer; scores must be there.

        Raises:
            ValueError: naming the key that is missing or wrong.
        """
        record = as_object(value, "a prediction")
        if "long_answer_score" not in record:
            _check_kind(record, "TyDi QA", ("passage_answer_index", "passage_answer_score", "minimal_answer"))
        shorts = list_of(record, "short_answers") if "short_answers" in record else []
        return NaturalQuestionsPrediction(
            example_id=example_id_of(record),
            long_answer=natural_questions_span(record.get("long_answer", {}), "long_answer"),
            long_answer_score=number_of(record, "long_answer_score"),
            short_answers=tuple(natural_questions_span(span, "short_answers") for span in shorts),
            short_answers_score=number_of(record, "short_answers_score"),
            yes_no_answer=yes_no_of(record, "NONE"),
        )


@dataclass(frozen=True)
class TydiqaPrediction:
    """One example's answers.

    Attributes:
        example_id: as in the gold data.
        language: as in the gold data, e.g. ``"finnish"``; the official evaluation groups by it.
        passage_answer_index: number of the passage among the example's candidates, or -1.
        passage_answer_score: the higher, the surer; below the evaluation's threshold the answer counts as none.
        minimal_answer: bytes of the document's plain text, or ``NO_SPAN``.
        minimal_answer_score: of the minimal answer, whether a span, yes or no.
        yes_no_answer: ``"NONE"``, ``"YES"`` or ``"NO"``; with yes or no there is no minimal answer.

    Raises:
        ValueError: a score is NaN, or ``yes_no_answer`` is another value or comes with a span.
    """

    example_id: int | str
    language: str
    passage_answer_index: int = -1
    passage_answer_score: float = 0.0
    minimal_answer: Span = NO_SPAN
    minimal_answer_score: float = 0.0
    yes_no_answer: str = "NONE"

    def __post_init__(self) -> None:
        _check_scores(passage_answer_score=self.passage_answer_score, minimal_answer_score=self.minimal_answer_score)
        _check_yes_no(self.yes_no_answer, "minimal_answer", (self.minimal_answer,))

    def to_json(self) -> dict[str, object]:
        """Return the object for one line of the official file."""
        minimal = {
            "start_byte_offset": self.minimal_answer.start_byte,
            "end_byte_offset": self.minimal_answer.end_byte,
        }
        return {
            "example_id": self.example_id,
            "language": self.language,
            "passage_answer_index": self.passage_answer_index,
            "passage_answer_score": self.passage_answer_score,
            "minimal_answer": minimal,
            "minimal_answer_score": self.minimal_answer_score,
            "yes_no_answer": self.yes_no_answer,
        }

    @staticmethod
    def from_json(value: object) -> TydiqaPrediction:
        """Read a line of the official file. A missing answer is no answer; language and scores must be there.

        Raises:
            ValueError: naming the key that is missing or wrong.
        """
        record = as_object(value, "a prediction")
        if "passage_answer_score" not in record:
            _check_kind(record, "Natural Questions", ("predictions", "long_answer", "short_answers"))
        minimal = NO_SPAN
        if "minimal_answer" in record:
            minimal = tydiqa_span(record["minimal_answer"], "minimal_answer", "start_byte_offset", "end_byte_offset")
        return TydiqaPrediction(
            example_id=example_id_of(record),
            language=text_of(record, "language"),
            passage_answer_index=integer_of(record, "passage_answer_index", -1),
            passage_answer_score=number_of(record, "passage_answer_score"),
            minimal_answer=minimal,
            minimal_answer_score=number_of(record, "minimal_answer_score"),
            yes_no_answer=yes_no_of(record, "NONE"),
        )


Prediction = NaturalQuestionsPrediction | TydiqaPrediction


def _check_scores(**scores: float) -> None:
    for name, score in scores.items():
        if math.isnan(score):
            raise ValueError(f"{name} is NaN, which no threshold can be compared with")


def _check_yes_no(answer: str, spans_name: str, spans: tuple[Span, ...]) -> None:
    if answer not in YES_NO_ANSWERS:
        raise ValueError(f"yes_no_answer must be one of {', '.join(YES_NO_ANSWERS)}, is {answer!r}")
    if answer != "NONE" and not all(span.is_null for span in spans):
        raise ValueError(
            f"yes_no_answer is {answer}, so {spans_name} must be none: the official evaluation refuses both"
        )


def _check_kind(record: dict[str, object], other: str, keys: tuple[str, ...]) -> None:
    """Say so where a prediction that lacks its score is one of the other corpus."""
    for key in keys:
        if key in record:
            raise ValueError(f"{key!r} belongs to {other}'s format: a file holds predictions of one kind")
