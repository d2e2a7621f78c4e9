"""Longest common subsequences against rouge-score's tables."""

import random

from rouge_score import rouge_scorer

from fairseq_poolingformer.tasks.summarization.rouge import lcs_length, summary_lcs_hits


def test_lcs_picks_rouge_scores_subsequence_among_ties():
    """Two letters make many equally long subsequences, of which the backtracking must pick the same one."""
    generator = random.Random(0)
    for _ in range(300):
        texts = [
            [generator.choices("abcd", k=generator.randint(1, 9)) for _ in range(generator.randint(1, 4))]
            for _ in range(2)
        ]
        hits = rouge_scorer._summary_level_lcs(*texts).recall * sum(map(len, texts[0]))
        assert summary_lcs_hits(*texts) == round(hits)
        table = rouge_scorer._lcs_table(texts[0][0], texts[1][0])
        assert lcs_length(texts[0][0], texts[1][0]) == table[-1][-1]
