"""Means over examples, and how far chance may move them: bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 1000
DRAWN = 2**24  # numbers in memory at a time, about
SEED = 0


@dataclass(frozen=True)
class Estimate:
    """A mean over examples with its bootstrap interval; fractions, not percent."""

    mean: float
    low: float
    high: float


class Mean(float):
    """A figure that is a mean over examples and knows what each adds; 100 times one is one, too."""

    values: np.ndarray  # (n,) in the figure's unit

    @classmethod
    def of(cls, mean: float, values: Sequence[float] | np.ndarray) -> Mean:
        """The mean, as whoever computed it has rounded it, with the values."""
        figure = cls(mean)
        figure.values = np.asarray(values, np.float64)
        return figure

    def __rmul__(self, factor: float) -> Mean:
        return Mean.of(factor * float(self), factor * self.values)


class Statistic(float):
    """A figure that is no mean over examples, such as F1, and knows how to compute itself of any of them."""

    table: np.ndarray  # (n, …) what each example adds
    of_rows: Callable[[np.ndarray], float]

    @classmethod
    def of(cls, table: np.ndarray, of_rows: Callable[[np.ndarray], float]) -> Statistic:
        """The figure of all examples."""
        figure = cls(of_rows(table))
        figure.table, figure.of_rows = table, of_rows
        return figure

    def interval(self) -> tuple[float, float]:
        """Its 95% bootstrap interval."""
        rng, count = np.random.default_rng(SEED), len(self.table)
        drawn = [self.of_rows(self.table[rng.integers(count, size=count)]) for _ in range(RESAMPLES)]
        return tuple(interval(np.array(drawn)).tolist())


def intervals(figures: Mapping[str, float | int]) -> dict[str, tuple[float, float]]:
    """The 95% bootstrap interval of each mean and each statistic; means of as many examples share resamples."""
    by_count: dict[int, dict[str, np.ndarray]] = {}
    for name, figure in figures.items():
        if isinstance(figure, Mean):
            by_count.setdefault(len(figure.values), {})[name] = figure.values
    ranges = {
        name: (estimate.low, estimate.high)
        for columns in by_count.values()
        for name, estimate in zip(columns, bootstrap_means(np.column_stack(list(columns.values()))), strict=True)
    }
    ranges |= {name: figure.interval() for name, figure in figures.items() if isinstance(figure, Statistic)}
    return {name: ranges[name] for name in figures if name in ranges}


def bootstrap_means(table: np.ndarray, seed: int = SEED) -> list[Estimate]:
    """The mean of each column of (N, K) scores and its 95% percentile bootstrap interval."""
    low, high = interval(resampled_means(table, seed))
    return [Estimate(*map(float, column)) for column in zip(table.mean(axis=0), low, high, strict=True)]


def interval(means: np.ndarray) -> np.ndarray:
    """(2, …) the 95% percentile interval of (:data:`RESAMPLES`, …) means."""
    return np.percentile(means, [2.5, 97.5], axis=0)


def shares(hits: int, predicted: int, there: int) -> dict[str, float]:
    """Precision, recall and F1 in percent, 0 where they are not defined."""
    return {
        "precision": 100 * hits / predicted if predicted else 0.0,
        "recall": 100 * hits / there if there else 0.0,
        "f1": 200 * hits / (predicted + there) if predicted + there else 0.0,
    }


def resampled_means(table: np.ndarray, seed: int = SEED) -> np.ndarray:
    """(:data:`RESAMPLES`, K) the means of corpora of N examples, drawn from (N, K) scores with replacement."""
    count = len(table)
    if not count:
        raise ValueError("scores are of no examples: there is nothing to average")
    if count == 1:
        return np.repeat(table, RESAMPLES, axis=0)
    from scipy.stats import bootstrap  # here, since it takes a second

    rng, batch = np.random.default_rng(seed), max(1, DRAWN // table.size)
    result = bootstrap((table,), np.mean, n_resamples=RESAMPLES, batch=batch, axis=0, method="percentile", rng=rng)
    return result.bootstrap_distribution.T
