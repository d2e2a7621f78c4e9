"""The annotators' answers of the official question files, as preprocessing and scoring both read them."""

from __future__ import annotations

from dataclasses import dataclass

from fairseq_poolingformer.tasks.question_answering.spans import Span, natural_questions_span, tydiqa_span
from fairseq_poolingformer.text.json_values import as_object, integer_of, list_of, yes_no_of

TYDIQA_KEYS = ("plaintext_start_byte", "plaintext_end_byte")


@dataclass(frozen=True)
class NaturalQuestionsAnnotation:
    """One annotator's answers: the long one or ``NO_SPAN``, the short spans, ``"YES"``, ``"NO"`` or ``"NONE"``."""

    long_answer: Span
    short_answers: tuple[Span, ...]
    yes_no_answer: str


@dataclass(frozen=True)
class TydiqaAnnotation:
    """One annotator's answers: a passage's number or -1, bytes or ``NO_SPAN``, ``"YES"``, ``"NO"`` or ``"NONE"``."""

    passage_answer_index: int
    minimal_answer: Span
    yes_no_answer: str


def natural_questions_annotation(value: object, where: str) -> NaturalQuestionsAnnotation:
    """Read an annotation of Natural Questions, in the original or the simplified format.

    Args:
        value: the JSON value.
        where: its place in the example, for messages.

    Raises:
        ValueError: naming the place or the key that is wrong.
    """
    record = as_object(value, where)
    long_answer = natural_questions_span(record.get("long_answer"), f"{where}.long_answer")
    short_answers = tuple(
        natural_questions_span(span, f"{where}.short_answers[{number}]")
        for number, span in enumerate(list_of(record, "short_answers"))
    )
    return NaturalQuestionsAnnotation(long_answer, short_answers, yes_no_of(record))


def tydiqa_annotation(value: object, where: str) -> TydiqaAnnotation:
    """Read an annotation of TyDi QA's primary tasks; arguments and errors as above."""
    record = as_object(value, where)
    passage = as_object(record.get("passage_answer"), f"{where}.passage_answer")
    minimal = tydiqa_span(record.get("minimal_answer"), f"{where}.minimal_answer", *TYDIQA_KEYS)
    return TydiqaAnnotation(integer_of(passage, "candidate_index"), minimal, yes_no_of(record))
