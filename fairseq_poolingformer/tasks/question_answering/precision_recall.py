"""Precision, recall and F1 of scored answers at every threshold, as both official evaluations compute them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Outcomes:
    """The predictions of n examples, compared with the gold answers; arrays of shape (n,).

    Attributes:
        has_gold: bool, whether there is an answer to be found.
        has_prediction: bool, whether an answer was predicted.
        credit: float64 from 0 to 1, how right the prediction is.
        score: float64, how sure the system was; below a threshold, an answer counts as no answer.
    """

    has_gold: np.ndarray
    has_prediction: np.ndarray
    credit: np.ndarray
    score: np.ndarray


@dataclass(frozen=True)
class OperatingPoint:
    """Figures of the answers with at least a certain score; the threshold is None where there is no such point."""

    f1: float
    precision: float
    recall: float
    threshold: float | None


class PrecisionRecallCurve:
    """Figures at each threshold, that is, at each score that occurs.

    Precision is credit over predicted answers, recall is credit over gold answers; each is 0 where it divides by 0.
    Answers of equal score are given together.

    Args:
        outcomes: of all examples. Their order changes the last bit only: credits are added in that order.

    Attributes:
        threshold: (m,) float64, descending, no two equal.
        precision, recall, f1: (m,) float64.
    """

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
        given = int(np.count_nonzero(self.threshold >= threshold))
        point = self._point(given - 1) if given else OperatingPoint(0.0, 0.0, 0.0, None)
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
