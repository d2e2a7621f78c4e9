"""Compares predictions with gold answers by the rules of the official evaluations: precision, recall and F1.

nq_eval.py and tydi_eval.py of github.com/google-research-datasets/natural-questions and …/tydiqa.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from fairseq_poolingformer.command import aligned
from fairseq_poolingformer.tasks.question_answering.official import (
    GoldExample,
    NaturalQuestionsAnnotation,
    NaturalQuestionsPrediction,
    Span,
    TydiqaAnnotation,
    TydiqaPrediction,
)

MIN_ANNOTATIONS = 2
TYDIQA_LANGUAGES = (
    *("english", "arabic", "bengali", "finnish", "indonesian", "japanese"),
    *("swahili", "korean", "russian", "telugu", "thai"),
)

# of one example: has_gold, has_prediction, credit, score, as in Outcomes
Outcome = tuple[bool, bool, float, float]


Of = TypeVar("Of")


@dataclass(frozen=True)
class Pair(Generic[Of]):
    """Both answers of an example: the paragraph (long, passage) and the answer in it (short, minimal)."""

    long: Of
    short: Of


def score_natural_questions(
    gold: Mapping[int | str, GoldExample],
    predictions: Mapping[int | str, NaturalQuestionsPrediction],
    min_annotations: int = MIN_ANNOTATIONS,
) -> Pair[Outcomes]:
    """Compare each long answer, and each short answer, whether spans, yes or no."""
    # where ``min_annotations`` gave an answer, a prediction must equal any one of them; every other prediction is wrong
    missing, extra = gold.keys() - predictions.keys(), predictions.keys() - gold.keys()
    if missing or extra:
        raise ValueError(
            f"gold data and predictions are not of the same examples: {len(missing)} have no prediction, {len(extra)} "
            "predictions are not of the gold data; an example without an answer needs a prediction too, with offsets "
            "of -1"
        )
    pairs = [(gold[key].annotations, predictions[key]) for key in official_order(gold)]
    return Pair(
        _outcomes(_natural_questions_long(*pair, min_annotations) for pair in pairs),
        _outcomes(_natural_questions_short(*pair, min_annotations) for pair in pairs),
    )


def score_tydiqa(
    gold: Mapping[int | str, GoldExample],
    predictions: Mapping[int | str, TydiqaPrediction],
    min_annotations: int = MIN_ANNOTATIONS,
) -> Pair[Outcomes]:
    """Compare each passage, and each minimal answer, whether a span, yes or no."""
    # As above, but a span gets the best F1 of its bytes. An example without a prediction gets score 0: a wrong answer
    # where there is no gold answer, and no answer where there is one. A prediction without an example is ignored
    pairs = [(gold[key].annotations, predictions.get(key)) for key in official_order(gold)]
    return Pair(
        _outcomes(_tydiqa_passage(*pair, min_annotations) for pair in pairs),
        _outcomes(_tydiqa_minimal(*pair, min_annotations) for pair in pairs),
    )


def score_tydiqa_languages(
    gold: Mapping[int | str, GoldExample],
    predictions: Mapping[int | str, TydiqaPrediction],
    min_annotations: int = MIN_ANNOTATIONS,
) -> dict[str, Pair[Outcomes]]:
    """Compare the answers of each language with predictions, official ones first."""
    # a prediction with a wrong language is missing in the example's language and ignored in its own
    gold_groups, prediction_groups = defaultdict(dict), defaultdict(dict)
    for key, example in gold.items():
        gold_groups[example.language][key] = example
    for key, prediction in predictions.items():
        prediction_groups[prediction.language][key] = prediction
    others = sorted(prediction_groups.keys() - set(TYDIQA_LANGUAGES))
    return {
        language: score_tydiqa(gold_groups[language], prediction_groups[language], min_annotations)
        for language in (*TYDIQA_LANGUAGES, *others)
        if language in prediction_groups
    }


def official_order(gold: Mapping[int | str, GoldExample]) -> list[int | str]:
    """Return the ids in the official scripts' order, that of a set of the keys, which decides the last bit of a sum."""
    return list(set(gold.keys()))


def _outcomes(rows: Iterable[Outcome]) -> Outcomes:
    table = np.array(list(rows), np.float64).reshape(-1, 4)
    return Outcomes(table[:, 0] != 0, table[:, 1] != 0, table[:, 2], table[:, 3])


def _enough(annotations: tuple, answered: Callable[[object], bool], min_annotations: int) -> bool:
    return sum(map(answered, annotations)) >= min_annotations


def _natural_questions_long(
    annotations: tuple[NaturalQuestionsAnnotation, ...], prediction: NaturalQuestionsPrediction, min_annotations: int
) -> Outcome:
    has_gold = _enough(annotations, lambda annotation: not annotation.long_answer.is_null, min_annotations)
    right = any(prediction.long_answer.matches(annotation.long_answer) for annotation in annotations)
    return has_gold, not prediction.long_answer.is_null, has_gold and right, prediction.long_answer_score


def _natural_questions_short(
    annotations: tuple[NaturalQuestionsAnnotation, ...], prediction: NaturalQuestionsPrediction, min_annotations: int
) -> Outcome:
    def answered(answers: NaturalQuestionsAnnotation | NaturalQuestionsPrediction) -> bool:
        return answers.yes_no_answer != "NONE" or not all(span.is_null for span in answers.short_answers)

    has_gold, has_prediction = _enough(annotations, answered, min_annotations), answered(prediction)
    if prediction.yes_no_answer != "NONE":
        right = any(prediction.yes_no_answer == annotation.yes_no_answer for annotation in annotations)
    else:
        right = any(_same_spans(prediction.short_answers, annotation.short_answers) for annotation in annotations)
    return has_gold, has_prediction, has_gold and has_prediction and right, prediction.short_answers_score


def _same_spans(left: tuple[Span, ...], right: tuple[Span, ...]) -> bool:
    """Whether each span of either side has its equal on the other; null spans do not count."""
    left, right = ([span for span in spans if not span.is_null] for spans in (left, right))
    return all(any(span.matches(other) for other in right) for span in left) and all(
        any(span.matches(other) for other in left) for span in right
    )


def _tydiqa_passage(
    annotations: tuple[TydiqaAnnotation, ...], prediction: TydiqaPrediction | None, min_annotations: int
) -> Outcome:
    has_gold = _enough(annotations, lambda annotation: annotation.passage_answer_index >= 0, min_annotations)
    if prediction is None:
        return has_gold, not has_gold, 0.0, 0.0
    has_prediction = prediction.passage_answer_index >= 0
    right = any(prediction.passage_answer_index == annotation.passage_answer_index for annotation in annotations)
    return has_gold, has_prediction, has_gold and has_prediction and right, prediction.passage_answer_score


def _tydiqa_minimal(
    annotations: tuple[TydiqaAnnotation, ...], prediction: TydiqaPrediction | None, min_annotations: int
) -> Outcome:
    def answered(answers: TydiqaAnnotation | TydiqaPrediction) -> bool:
        return answers.yes_no_answer != "NONE" or not answers.minimal_answer.is_null

    has_gold = _enough(annotations, answered, min_annotations)
    if prediction is None:
        return has_gold, not has_gold, 0.0, 0.0
    has_prediction = answered(prediction)
    if not (has_gold and has_prediction):
        credit = 0.0
    elif prediction.yes_no_answer != "NONE":
        credit = float(any(prediction.yes_no_answer == annotation.yes_no_answer for annotation in annotations))
    else:
        credit = max(_byte_f1(annotation.minimal_answer, prediction.minimal_answer) for annotation in annotations)
    return has_gold, has_prediction, credit, prediction.minimal_answer_score


def _byte_f1(gold: Span, predicted: Span) -> float:
    """Return the F1 of the bytes; a null span gives 0, since its offsets of -1 share no byte with anything."""
    shared = min(gold.end_byte, predicted.end_byte) - max(gold.start_byte, predicted.start_byte)
    if shared <= 0:
        return 0.0
    precision, recall = shared / (predicted.end_byte - predicted.start_byte), shared / (gold.end_byte - gold.start_byte)
    return 2 * precision * recall / (precision + recall)


@dataclass(frozen=True)
class Outcomes:
    """The predictions of n examples, compared with the gold answers; arrays of shape (n,)."""

    has_gold: np.ndarray  # bool, whether there is an answer to be found
    has_prediction: np.ndarray  # bool, whether an answer was predicted
    credit: np.ndarray  # float64 from 0 to 1, how right the prediction is
    score: np.ndarray  # float64, how sure the system was; below a threshold, an answer counts as no answer


@dataclass(frozen=True)
class OperatingPoint:
    """Figures of the answers with at least a certain score; the threshold is None where there is no such point."""

    f1: float
    precision: float
    recall: float
    threshold: float | None


class PrecisionRecallCurve:
    """Figures at each score that occurs, (m,) float64, ``threshold`` descending; 0 where they divide by 0."""

    def __init__(self, outcomes: Outcomes) -> None:
        order = np.argsort(-outcomes.score, kind="stable")
        score = outcomes.score[order]
        last = np.flatnonzero(np.append(score[1:] != score[:-1], True)[: len(score)])
        credit = np.cumsum(outcomes.credit[order])[last]
        predicted = np.cumsum(outcomes.has_prediction[order])[last]
        self.threshold = score[last]
        self.precision = _safe_divide(credit, predicted)
        self.recall = _safe_divide(credit, np.full(len(last), np.count_nonzero(outcomes.has_gold)))
        self.f1 = _safe_divide(2 * self.precision * self.recall, self.precision + self.recall)

    def best(self) -> OperatingPoint:
        """Return the point of the highest F1, at the highest threshold that has it; all 0 where nothing is right."""
        if not self.f1.any():
            return OperatingPoint(0.0, 0.0, 0.0, 0.0)
        return self._point(int(np.argmax(self.f1)))

    def at_threshold(self, threshold: float) -> OperatingPoint:
        """Return the point where answers with at least this score are given; minus infinity gives all."""
        count = int(np.count_nonzero(self.threshold >= threshold))
        point = self._point(count - 1) if count else OperatingPoint(0.0, 0.0, 0.0, None)
        return OperatingPoint(point.f1, point.precision, point.recall, threshold)

    def at_precision(self, precision: float) -> OperatingPoint:
        """Return the point of the highest recall with at least this precision; all 0 where there is no such point."""
        recall = np.where(self.precision >= precision, self.recall, 0.0)
        if not recall.any():
            return OperatingPoint(0.0, 0.0, 0.0, None)
        return self._point(int(np.argmax(recall)))

    def _point(self, index: int) -> OperatingPoint:
        columns = (self.f1, self.precision, self.recall, self.threshold)
        return OperatingPoint(*(float(column[index]) for column in columns))


def _safe_divide(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Divide; the quotient is 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=denominator != 0)


PRECISION_TARGETS = (0.5, 0.75, 0.9)


@dataclass(frozen=True)
class AnswerReport:
    """Figures of one kind of answer over a set of examples."""

    examples: int  # their number
    gold: int  # examples with an answer to be found
    predicted: int  # examples with a predicted answer
    best: OperatingPoint  # at the threshold of the highest F1
    all_given: OperatingPoint  # with every predicted answer, whatever its score
    at_precision: dict[float, OperatingPoint]  # by target, the point of the highest recall with at least that precision
    at_threshold: OperatingPoint | None  # at a given threshold; None without one


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
    """Average over TyDi QA's official languages, with or (officially) without English; each counts once."""
    chosen = [reports[name] for name in TYDIQA_LANGUAGES if name in reports and (english or name != "english")]
    thresholds = [report.at_threshold for report in chosen]
    return AnswerReport(
        examples=sum(report.examples for report in chosen),
        gold=sum(report.gold for report in chosen),
        predicted=sum(report.predicted for report in chosen),
        best=_average([report.best for report in chosen]),
        all_given=_average([report.all_given for report in chosen]),
        at_precision={
            target: _average([report.at_precision[target] for report in chosen]) for target in PRECISION_TARGETS
        },
        at_threshold=_average(thresholds) if any(thresholds) else None,
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
    has_threshold = any(report.at_threshold for report in reports.values())
    head = [title, "examples", "answered", "predicted", "best F1", "P", "R", "threshold", "all F1", "P", "R"]
    head += ["given F1", "P", "R"] if has_threshold else []
    head += [f"R@P{100 * target:.0f}" for target in PRECISION_TARGETS]
    rows = [head, *(_row(name, report, has_threshold) for name, report in reports.items())]
    return aligned(rows).split("\n")


def _row(name: str, report: AnswerReport, has_threshold: bool) -> list[str]:
    threshold = "-" if report.best.threshold is None else f"{report.best.threshold:.5g}"
    cells = [name, *(f"{count:,}" for count in (report.examples, report.gold, report.predicted))]
    cells += [*_percent(report.best), threshold, *_percent(report.all_given)]
    if has_threshold:
        cells += _percent(report.at_threshold) if report.at_threshold else ["-"] * 3
    return cells + [f"{100 * point.recall:.2f}" for point in report.at_precision.values()]


def _percent(point: OperatingPoint) -> list[str]:
    return [f"{100 * value:.2f}" for value in (point.f1, point.precision, point.recall)]


def _average(points: list[OperatingPoint]) -> OperatingPoint:
    figures = [[getattr(point, name) for point in points] for name in ("f1", "precision", "recall")]
    return OperatingPoint(*(sum(values) / len(values) if values else 0.0 for values in figures), threshold=None)
