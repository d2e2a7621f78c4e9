"""The figures that the official evaluations print, laid out, and notes about the data behind them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairseq_poolingformer.tasks.question_answering.gold import NATURAL_QUESTIONS, GoldExample, Span
from fairseq_poolingformer.tasks.question_answering.official_predictions import NaturalQuestionsPrediction, Prediction
from fairseq_poolingformer.tasks.question_answering.scoring import (
    TYDIQA_LANGUAGES,
    OperatingPoint,
    Outcomes,
    Pair,
    PrecisionRecallCurve,
    describe_ids,
    mistyped_ids,
)
from fairseq_poolingformer.text.table import aligned

PRECISION_TARGETS = (0.5, 0.75, 0.9)


@dataclass(frozen=True)
class AnswerReport:
    """Figures of one kind of answer over a set of examples.

    Attributes:
        examples: their number.
        gold, predicted: examples with an answer to be found, and with a predicted answer.
        best: at the threshold of the highest F1.
        all_given: with every predicted answer, whatever its score.
        at_precision: by target, the point of the highest recall with at least that precision.
        at_threshold: at a given threshold; None without one.
    """

    examples: int
    gold: int
    predicted: int
    best: OperatingPoint
    all_given: OperatingPoint
    at_precision: dict[float, OperatingPoint]
    at_threshold: OperatingPoint | None


def answer_report(outcomes: Outcomes, threshold: float | None = None) -> AnswerReport:
    """Compute the figures of one kind of answer, also where answers with at least ``threshold`` are given."""
    curve = PrecisionRecallCurve(outcomes)
    return AnswerReport(
        examples=len(outcomes.score),
        gold=int(np.count_nonzero(outcomes.has_gold)),
        predicted=int(np.count_nonzero(outcomes.has_prediction)),
        best=curve.best(),
        all_given=replace(curve.at_threshold(-math.inf), threshold=None),
        at_precision={target: curve.at_precision(target) for target in PRECISION_TARGETS},
        at_threshold=None if threshold is None else curve.at_threshold(threshold),
    )


def pair_report(scored: Pair[Outcomes], thresholds: Sequence[float | None] = (None, None)) -> Pair[AnswerReport]:
    """Compute the figures of both kinds of answers, also at the thresholds of long and of short ones."""
    return Pair(*map(answer_report, (scored.long, scored.short), thresholds))


def official_metrics(report: Pair[AnswerReport], long_name: str, short_name: str) -> dict[str, float]:
    """Return the figures under the keys of the official scripts: of long and short, or passage and minimal answers."""
    metrics = {}
    for name, answers in ((long_name, report.long), (short_name, report.short)):
        metrics[f"{name}-best-threshold-f1"] = answers.best.f1
        metrics[f"{name}-best-threshold-precision"] = answers.best.precision
        metrics[f"{name}-best-threshold-recall"] = answers.best.recall
        metrics[f"{name}-best-threshold"] = answers.best.threshold
        for target, point in answers.at_precision.items():
            metrics[f"{name}-recall-at-precision>={target:.2}"] = point.recall
            metrics[f"{name}-precision-at-precision>={target:.2}"] = point.precision
    return metrics


def average_over_languages(reports: Mapping[str, AnswerReport], english: bool = False) -> AnswerReport:
    """Average over TyDi QA's official languages, with or (officially) without English; each counts once.

    All figures are 0 without a language; the counts are sums, and there are no thresholds.
    """
    chosen = [reports[name] for name in TYDIQA_LANGUAGES if name in reports and (english or name != "english")]
    return AnswerReport(
        examples=sum(report.examples for report in chosen),
        gold=sum(report.gold for report in chosen),
        predicted=sum(report.predicted for report in chosen),
        best=_average([report.best for report in chosen]),
        all_given=_average([report.all_given for report in chosen]),
        at_precision={
            target: _average([report.at_precision[target] for report in chosen]) for target in PRECISION_TARGETS
        },
        at_threshold=_average([report.at_threshold for report in chosen])
        if any(report.at_threshold for report in chosen)
        else None,
    )


def official_averages(passage: AnswerReport, minimal: AnswerReport) -> dict[str, float]:
    """Return averages over languages under the keys that the official script gives them."""
    return {
        f"avg_{name}_{figure}": getattr(report.best, figure)
        for name, report in (("passage", passage), ("minimal", minimal))
        for figure in ("f1", "recall", "precision")
    }


def table(title: str, reports: Mapping[str, AnswerReport]) -> list[str]:
    """Lay out reports in lines by the name of the row, with F1, precision and recall × 100."""
    given = any(report.at_threshold for report in reports.values())
    head = [title, "examples", "answered", "predicted", "best F1", "P", "R", "threshold", "all F1", "P", "R"]
    head += ["given F1", "P", "R"] if given else []
    head += [f"R@P{100 * target:.0f}" for target in PRECISION_TARGETS]
    rows = [head, *(_row(name, report, given) for name, report in reports.items())]
    return aligned(rows).split("\n")


def _row(name: str, report: AnswerReport, given: bool) -> list[str]:
    threshold = "-" if report.best.threshold is None else f"{report.best.threshold:.5g}"
    cells = [name, *(f"{count:,}" for count in (report.examples, report.gold, report.predicted))]
    cells += [*_percent(report.best), threshold, *_percent(report.all_given)]
    if given:
        cells += _percent(report.at_threshold) if report.at_threshold else ["-"] * 3
    return cells + [f"{100 * point.recall:.2f}" for point in report.at_precision.values()]


def _percent(point: OperatingPoint) -> list[str]:
    return [f"{100 * value:.2f}" for value in (point.f1, point.precision, point.recall)]


def _average(points: list[OperatingPoint]) -> OperatingPoint:
    figures = [[getattr(point, name) for point in points] for name in ("f1", "precision", "recall")]
    return OperatingPoint(*(sum(values) / len(values) if values else 0.0 for values in figures), threshold=None)


def notes(
    gold: Mapping[int | str, GoldExample], predictions: Mapping[int | str, Prediction], min_annotations: int
) -> list[str]:
    """Write a sentence about everything that is missing, unexpected or certain to score 0."""
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
