"""Means over examples, and how far chance may move them: bootstrap intervals."""

from __future__ import annotations

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


def bootstrap_means(table: np.ndarray, seed: int = SEED) -> list[Estimate]:
    """The mean of each column of (N, K) scores and its 95% percentile bootstrap interval."""
    low, high = np.percentile(resampled_means(table, seed), [2.5, 97.5], axis=0)
    return [Estimate(*map(float, column)) for column in zip(table.mean(axis=0), low, high, strict=True)]


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
