"""The metrics of SCROLLS and ZeroSCROLLS on cases by hand; test_official.py has the official scripts."""

import sys
from types import SimpleNamespace

import pytest

from fairseq_poolingformer.extras import MissingLibraryError
from fairseq_poolingformer.tasks.presets import metrics
from fairseq_poolingformer.tasks.presets.metrics import METRICS

# of the docstring of SCROLLS' script
PREDICTIONS = ["exact match example", "hello there", "general kenobi"]
REFERENCES = [["exact match example"], ["hello", "hi there"], ["commander kenobi"]]


def figures(name, predictions, references):
    metric = METRICS[name]
    return {key: round(value, 4) for key, value in metric.figures(metric.values(predictions, references)).items()}


def test_the_example_of_scrolls():
    expected = {"rouge1": 72.2222, "rouge2": 33.3333, "rougeL": 72.2222, "geometric_mean": 55.8136}
    assert figures("rouge", PREDICTIONS, REFERENCES) == expected
    assert figures("exact_match", PREDICTIONS, REFERENCES) == {"exact_match": 33.3333}
    assert figures("f1", PREDICTIONS, REFERENCES) == {"f1": 72.2222}


def test_rouge_takes_the_best_reference_of_each_type():
    """The first has the words, the second the pair, in another order."""
    found = figures("rouge", ["cats sat on mats"], [["mats on sat cats", "sat on"]])
    assert found["rouge1"] == 100
    assert found["rouge2"] == 50.0  # one of one pair, one of three
    assert found["rougeL"] == pytest.approx(100 * 2 / 3, abs=1e-4)
    assert figures("rouge", ["cat"], [["cats"]])["rouge1"] == 0  # no stems
    assert figures("rouge_stemmed", ["cat"], [["cats"]])["rouge1"] == 100


def test_f1_of_ascii_words(monkeypatch):
    marks = str.maketrans("ïé½", "ie ")
    monkeypatch.setitem(sys.modules, "unidecode", SimpleNamespace(unidecode=lambda text: text.translate(marks)))
    # articles go before a½b becomes two words
    assert METRICS["f1_ascii"].values(["naïve a½b"], [["naive a b", ""]]) == {"f1": [0.8]}
    monkeypatch.setitem(sys.modules, "unidecode", None)
    with pytest.raises(MissingLibraryError, match=r"unidecode is not installed: pip install .*\[zero-scrolls\]"):
        metrics.f1_ascii("a", "b")


@pytest.mark.parametrize(
    ("prediction", "right"),
    [("(B) two", True), ("B.", True), ("Answer: B or C", True), ("C, not B", False), ("b", False)],
)
def test_accuracy(prediction, right):
    assert metrics.accuracy(prediction, "(B) two cats") is right
    with pytest.raises(ValueError, match="must have a letter from A to D, is 'two'"):
        metrics.accuracy(prediction, "two")


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        ("40%", 1),
        ("Some 50% or 40%", 0.5),
        ("30.0% of 50", 0.5),
        ("", 0),
        ("9" * 400 + "%", 0),
    ],
)
def test_exponential_similarity(prediction, expected):
    assert metrics.exponential_similarity(prediction, "40%") == expected
    with pytest.raises(ValueError, match="must have a percentage, is 'forty'"):
        metrics.exponential_similarity(prediction, "forty")


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        ("2, 1, 3", 1),
        ("Order: 3,1,2", 0),
        ("1 2 3", 2 / 3),
        ("2, 1", 0),
        ("1" * 5000, 0),
    ],
)
def test_concordance_index(prediction, expected):
    assert metrics.concordance_index(prediction, "2, 1, 3") == expected


@pytest.mark.parametrize("gold", ["1", "1, 3", "one, two"])
def test_an_order_that_is_none(gold):
    with pytest.raises(ValueError, match="must be an order of the numbers from 1, is"):
        metrics.concordance_index("1, 2", gold)
