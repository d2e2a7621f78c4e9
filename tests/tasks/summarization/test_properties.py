"""ROUGE of texts that hypothesis chooses, against rouge-score."""

import hypothesis.strategies as st
import pytest
from hypothesis import given
from rouge_score import rouge_scorer

from fairseq_poolingformer.tasks.summarization.rouge import ROUGE_TYPES, SENTENCE_SPLITS, rouge_scores, split_sentences

words = st.sampled_from(
    ["pool", "pools", "pooling", "key", "Keys", "a", ".", "!", "3.5", "naïve", "—", "U.S.", "\n", "\u2028"]
)
texts = st.lists(words, max_size=25).map(" ".join) | st.text(max_size=40)


@given(hypothesis=texts, reference=texts, stemmer=st.booleans(), split=st.sampled_from(list(SENTENCE_SPLITS)))
def test_any_texts_have_rouge_scores_figures(hypothesis, reference, stemmer, split):
    scores = rouge_scores([hypothesis], [reference], stemmer=stemmer, sentence_split=split)
    oracle = rouge_scorer.RougeScorer(list(ROUGE_TYPES), use_stemmer=stemmer)
    expected = oracle.score(*("\n".join(split_sentences(text, split)) for text in (reference, hypothesis)))
    for name in ROUGE_TYPES:
        assert tuple(scores[name][0]) == pytest.approx(tuple(expected[name]), abs=1e-12)


@given(text=texts, other=texts)
def test_precision_of_one_is_recall_of_the_other(text, other):
    one, two = rouge_scores([text], [other]), rouge_scores([other], [text])
    for name in ROUGE_TYPES[:3]:  # of rougeLsum, ties between subsequences are broken differently
        assert tuple(one[name][0][:2]) == pytest.approx(tuple(two[name][0][1::-1]), abs=1e-12)
