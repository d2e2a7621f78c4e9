"""The metrics of SCROLLS and ZeroSCROLLS: a value for each prediction, and figures of all, digit for digit.

A prediction's value is the best over its references. R-Lsum, which SCROLLS prints beside the score, is left out: it
depends on the version of nltk's sentences.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import combinations, pairwise
from operator import add

import numpy as np

from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.tasks.shared.answers import exact_match, f1, hotpotqa_words, overlap
from fairseq_poolingformer.tasks.shared.estimates import interval, resampled_means
from fairseq_poolingformer.tasks.summarization.rouge import rouge_scores

Values = dict[str, list[float]]  # of each figure, those of the predictions
_LETTER = re.compile(r"\b[A-D]\b")
_PERCENTAGE = re.compile(r"(?<!\d)\d+(?:\.\d*)?%")  # as \d+\.?\d*%, but in linear time
_NOT_ORDER = re.compile(r"[^0-9\s,]")
GEOMETRIC_MEAN = "geometric_mean"


@dataclass(frozen=True)
class Metric:
    """A metric."""

    values: Callable[[Sequence[str], Sequence[Sequence[str]]], Values]  # of predictions, given the references of each
    score: str  # the figure that a benchmark takes for its mean
    scale: float = 100.0  # values times this are percent

    def figures(self, values: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """The mean of each figure's values in percent, from the first to the last as the scripts add them."""
        means = {name: self.scale * reduce(add, column, 0) / len(column) for name, column in values.items()}
        return means | ({GEOMETRIC_MEAN: _geometric(means)} if self.score == GEOMETRIC_MEAN else {})

    def intervals(self, values: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
        """The 95% bootstrap interval of each figure, in percent."""
        means = dict(zip(values, self.scale * resampled_means(np.array(list(values.values()), float).T).T, strict=True))
        means |= {GEOMETRIC_MEAN: _geometric(means)} if self.score == GEOMETRIC_MEAN else {}
        return {name: tuple(interval(column).tolist()) for name, column in means.items()}


def _geometric(means: Mapping[str, float]) -> float:
    return (means["rouge1"] * means["rouge2"] * means["rougeL"]) ** (1.0 / 3.0)


def _rouge(
    predictions: Sequence[str], references: Sequence[Sequence[str]], names: Sequence[str], stemmer: bool = False
) -> Values:
    pairs = [(prediction, text) for prediction, texts in zip(predictions, references, strict=True) for text in texts]
    scores = rouge_scores(*map(list, zip(*pairs, strict=True)), stemmer=stemmer)
    ends = np.cumsum([0, *map(len, references)])
    return {name: [100 * max(scores[name][first:end, 2].tolist()) for first, end in pairwise(ends)] for name in names}


def _best(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    name: str,
    value: Callable[[str, str], float],
) -> Values:
    pairs = zip(predictions, references, strict=True)
    return {name: [max(value(prediction, text) for text in texts) for prediction, texts in pairs]}


def f1_ascii(prediction: str, reference: str) -> float:
    """:func:`f1` of the words that Unidecode makes of the words."""
    with needing("zero-scrolls"):
        unidecode = importlib.import_module("unidecode").unidecode
    words = [unidecode(" ".join(hotpotqa_words(text))).split() for text in (prediction, reference)]
    return overlap(*words).f1


def accuracy(prediction: str, reference: str) -> bool:
    """Whether the first letter from A to D that is a word is the reference's."""
    right, found = _LETTER.search(reference), _LETTER.search(prediction)
    if right is None:
        raise ValueError(f"a right answer must have a letter from A to D, is {reference[:60]!r}")
    return found is not None and found[0] == right[0]


def exponential_similarity(prediction: str, reference: str) -> float:
    """Half for every ten points that the first percentages differ by; 0 without one."""
    right, found = _PERCENTAGE.search(reference), _PERCENTAGE.search(prediction)
    if right is None:
        raise ValueError(f"a right answer must have a percentage, is {reference[:60]!r}")
    return 0.5 ** (abs(float(right[0][:-1]) - float(found[0][:-1])) / 10) if found else 0.0


def concordance_index(prediction: str, reference: str) -> float:
    """The share of pairs in the right order; 0 where the prediction is not a permutation of the reference."""
    right, found = _order(reference), _order(prediction)
    if len(right) < 2 or sorted(right) != list(range(1, len(right) + 1)):
        raise ValueError(f"a right answer must be an order of the numbers from 1, is {reference[:60]!r}")
    if sorted(found) != sorted(right):
        return 0.0
    place = {number: index for index, number in enumerate(found)}
    pairs = list(combinations(right, 2))
    return sum(place[first] < place[second] for first, second in pairs) / len(pairs)


def _order(text: str) -> list[int]:
    try:
        return [int(number) for number in _NOT_ORDER.sub("", text).replace(",", " ").split()]
    except ValueError:  # more digits than Python reads
        return []


_TYPES = ("rouge1", "rouge2", "rougeL")
METRICS: dict[str, Metric] = {
    "rouge": Metric(partial(_rouge, names=_TYPES), GEOMETRIC_MEAN, scale=1),
    "rouge_stemmed": Metric(partial(_rouge, names=(*_TYPES, "rougeLsum"), stemmer=True), "rougeL", scale=1),
    "f1": Metric(partial(_best, name="f1", value=f1), "f1"),
    "f1_ascii": Metric(partial(_best, name="f1", value=f1_ascii), "f1"),
    **{
        value.__name__: Metric(partial(_best, name=value.__name__, value=value), value.__name__)
        for value in (exact_match, accuracy, exponential_similarity, concordance_index)
    },
}
