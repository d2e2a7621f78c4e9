import itertools

import numpy as np
import pytest
from rouge_score import rouge_scorer

from fairseq_poolingformer.tasks.summarization.rouge import (
    ROUGE_TYPES,
    SENTENCE_SPLITS,
    bootstrap,
    describe,
    mean_f1,
    rouge_scores,
    split_sentences,
)


@pytest.mark.parametrize("stemmer", [True, False])
@pytest.mark.parametrize("split", SENTENCE_SPLITS)
def test_equals_rouge_score(pairs, stemmer, split):
    hypotheses, references = pairs
    scores = rouge_scores(hypotheses, references, stemmer=stemmer, sentence_split=split)
    oracle = rouge_scorer.RougeScorer(list(ROUGE_TYPES), use_stemmer=stemmer)
    for row, texts in enumerate(zip(references, hypotheses, strict=True)):
        expected = oracle.score(*("\n".join(split_sentences(text, split)) for text in texts))
        for name in ROUGE_TYPES:
            assert tuple(scores[name][row]) == tuple(expected[name])


def test_hand_computed():
    scores = rouge_scores(["police killed the gunman"], ["the gunman killed the policeman"], stemmer=False)
    np.testing.assert_allclose(scores["rouge1"][0], [3 / 4, 3 / 5, 2 / 3])
    np.testing.assert_allclose(scores["rouge2"][0], [2 / 3, 2 / 4, 4 / 7])
    np.testing.assert_allclose(scores["rougeL"][0], [2 / 4, 2 / 5, 4 / 9])


def test_sentences_decide_lsum_only():
    hypothesis, reference = "It helps. We pool keys.", "We pool keys. It helps."
    by_rule, whole = (rouge_scores([hypothesis], [reference], sentence_split=s) for s in ("rule", "newline"))
    assert by_rule["rougeLsum"][0, 2] == 1
    assert whole["rougeLsum"][0, 2] == whole["rougeL"][0, 2] == by_rule["rougeL"][0, 2] == pytest.approx(0.6)


def test_nothing_to_score():
    scores = rouge_scores(["", "\u2028", "some words", "..."], ["some words", "words", "", "..."])
    assert all(not rows.any() for rows in scores.values())
    assert mean_f1([], []) == dict.fromkeys(ROUGE_TYPES, 0.0)
    with pytest.raises(ValueError, match="no examples"):
        bootstrap(rouge_scores([], []))


def test_refuses_unequal_numbers_and_unknown_split():
    with pytest.raises(ValueError, match="2 hypotheses but 1 references"):
        rouge_scores(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="choose one of rule, period, newline"):
        rouge_scores(["a"], ["a"], sentence_split="nltk")


def test_bootstrap(pairs):
    scores = rouge_scores(*pairs)
    estimates = bootstrap(scores)
    assert estimates == bootstrap(scores)
    assert estimates != bootstrap(scores, seed=1)
    for name, rows in scores.items():
        f1 = estimates[name].f1
        assert f1.mean == pytest.approx(rows[:, 2].mean())
        half_width = 1.96 * rows[:, 2].std() / np.sqrt(len(rows))
        assert f1.low == pytest.approx(f1.mean - half_width, rel=0.05)
        assert f1.high == pytest.approx(f1.mean + half_width, rel=0.05)
    assert mean_f1(*pairs)["rouge2"] == pytest.approx(100 * estimates["rouge2"].f1.mean)


def test_intervals_are_the_percentiles_of_resampled_means(pairs):
    """Interpolated between two of the 1,000 ordered means, without numpy's percentiles and its weights."""
    scores = rouge_scores(*pairs)
    generator = np.random.default_rng(0)
    drawn = [generator.integers(120, size=120) for _ in range(1000)]
    for name, estimate in bootstrap(scores).items():
        for column, found in enumerate((estimate.precision, estimate.recall, estimate.f1)):
            means = sorted(scores[name][rows, column].mean() for rows in drawn)
            low, high = _interpolated(means, 0.025), _interpolated(means, 0.975)
            assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)


def _interpolated(ordered, fraction):
    position = fraction * (len(ordered) - 1)
    below = int(position)
    return ordered[below] + (position - below) * (ordered[below + 1] - ordered[below])


def test_intervals_cover_the_exact_bootstrap_distribution():
    """All 6⁶ resamples of six examples, with their exact probabilities: the interval leaves 2.5 % on each side."""
    values = np.array([0.0, 0.11, 0.23, 0.41, 0.67, 1.0])
    found = bootstrap({"rouge1": np.stack([values] * 3, axis=1)})["rouge1"].f1
    means = np.sort(np.array(list(itertools.product(values, repeat=6))).mean(axis=1))
    below, above = (means < found.low).mean(), (means > found.high).mean()
    assert 0.015 < below < 0.035
    assert 0.015 < above < 0.035
    assert found.mean == pytest.approx(means.mean())


def test_description_states_the_settings(pairs):
    estimates = bootstrap(rouge_scores(*pairs, stemmer=False, sentence_split="period"))
    text = describe(estimates, examples=120, stemmer=False, sentence_split="period")
    for said in ("120 examples", "stemming off", "period = as files2rouge", "95% bootstrap", "1000 resamples"):
        assert said in text
    labels = [line.split()[0] for line in text.splitlines()[1:]]
    assert labels == ["ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE-Lsum"]
