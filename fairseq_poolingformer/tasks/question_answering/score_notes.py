"""Notes for the reader of a score about the data behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairseq_poolingformer.tasks.question_answering.gold import GoldExample
from fairseq_poolingformer.tasks.question_answering.official_predictions import (
    NATURAL_QUESTIONS,
    NaturalQuestionsPrediction,
    Prediction,
)
from fairseq_poolingformer.tasks.question_answering.scoring import TYDIQA_LANGUAGES, describe_ids, mistyped_ids
from fairseq_poolingformer.tasks.question_answering.spans import Span


def notes(
    gold: Mapping[int | str, GoldExample], predictions: Mapping[int | str, Prediction], min_annotations: int
) -> list[str]:
    """Write a sentence about everything that is missing, unexpected or certain to score 0.

    Args:
        gold: examples by id.
        predictions: by id, in the same corpus's format.
        min_annotations: how many annotators must have given an answer.
    """
    found = []
    most = max(len(example.annotations) for example in gold.values())
    if most < min_annotations:
        found.append(
            f"no example has more than {most} annotation{'' if most == 1 else 's'}, so no example counts as having an "
            f"answer and every figure is 0; --min-annotations {most} is for such data"
        )
    if next(iter(gold.values())).kind == NATURAL_QUESTIONS:
        return found + _unit_notes(gold, predictions)
    return found + _tydiqa_notes(gold, predictions)


def _unit_notes(
    gold: Mapping[int | str, GoldExample], predictions: Mapping[int | str, NaturalQuestionsPrediction]
) -> list[str]:
    gold_spans = (
        span
        for example in gold.values()
        for annotation in example.annotations
        for span in (annotation.long_answer, *annotation.short_answers)
    )
    predicted_spans = (
        span for prediction in predictions.values() for span in (prediction.long_answer, *prediction.short_answers)
    )
    gold_units, predicted_units = _units(gold_spans), _units(predicted_spans)
    if gold_units and predicted_units and not gold_units & predicted_units:
        return [
            f"the gold data gives offsets in {min(gold_units)} only, the predictions in {min(predicted_units)} only, "
            "so no span can be right; the simplified data has no bytes"
        ]
    return []


def _units(spans: Iterable[Span]) -> set[str]:
    units = set()
    for span in spans:
        units |= {unit for unit, known in (("bytes", span.has_bytes), ("tokens", span.has_tokens)) if known}
    return units


def _tydiqa_notes(gold: Mapping[int | str, GoldExample], predictions: Mapping[int | str, Prediction]) -> list[str]:
    found = []
    if missing := gold.keys() - predictions.keys():
        found.append(
            f"{describe_ids(missing)} without a prediction; by the official rule each counts as a wrong answer with "
            "score 0 where there is no gold answer, and as no answer where there is one"
        )
    if unexpected := predictions.keys() - gold.keys():
        mistyped = mistyped_ids(gold, predictions)
        found.append(f"predictions of {describe_ids(unexpected)} not in the gold data are ignored{mistyped}")
    shared = gold.keys() & predictions.keys()
    if wrong := [key for key in shared if gold[key].language != predictions[key].language]:
        found.append(
            f"predictions of {describe_ids(wrong)} name another language than the gold data; by the official rule they "
            "are missing in the gold data's language and ignored in their own"
        )
    gold_languages = {example.language for example in gold.values()}
    predicted_languages = {prediction.language for prediction in predictions.values()}
    if without := gold_languages - predicted_languages:
        found.append(f"no predictions in {', '.join(sorted(without))}: left out of the averages, as officially")
    if others := predicted_languages - set(TYDIQA_LANGUAGES):
        found.append(f"{', '.join(sorted(others))}: not among the official languages, left out of the averages")
    return found
