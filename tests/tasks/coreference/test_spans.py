"""Spans and entities against definitions written with loops."""

import numpy as np
import torch

from fairseq_poolingformer.tasks.coreference.data import merge_clusters
from fairseq_poolingformer.tasks.coreference.head import Antecedents, candidate_spans, keep_spans, link_clusters
from tests.tasks.coreference.official_coreference import crosses


def test_candidates_lie_in_a_sentence():
    found = candidate_spans(np.array([0, 0, 0, 1, 1]), 2)
    assert found.tolist() == [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3], [3, 4], [3, 5], [4, 5]]


def test_spans_are_kept_by_score_unless_they_cross_a_better_one():
    rng = np.random.default_rng(0)
    for _ in range(50):
        sentences = np.sort(rng.integers(0, 3, size=rng.integers(1, 25)))
        spans = candidate_spans(sentences, 6)
        scores = rng.integers(0, 30, size=len(spans)) / 3  # with ties
        limit = int(rng.integers(1, 15))
        kept = []
        for number in sorted(range(len(spans)), key=lambda number: (-scores[number], number)):
            if len(kept) < limit and not any(crosses(spans[number].tolist(), spans[other].tolist()) for other in kept):
                kept.append(number)
        assert keep_spans(spans, scores, limit).tolist() == sorted(kept)


def test_links_make_entities_of_two_and_more():
    spans = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
    assert link_clusters(spans, [-1, -1, 0, 1, 2, -1]) == [[(0, 1), (2, 3), (4, 5)], [(1, 2), (3, 4)]]


def test_entities_that_share_a_mention_become_one():
    rows = [(0, 1, 1), (2, 3, 1), (4, 5, 2), (6, 7, 3), (2, 3, 2), (6, 7, 3), (8, 9, 4), (4, 5, 4)]
    merged = merge_clusters(np.array(rows))
    entities = {}
    for start, _, entity in merged.tolist():
        entities.setdefault(entity, set()).add(start)
    assert entities == {1: {0, 2, 4, 8}, 2: {6}}
    assert merge_clusters(np.zeros((0, 3), np.int64)).shape == (0, 3)


def test_the_best_antecedent_is_that_of_the_highest_score():
    output = Antecedents(
        spans=torch.tensor([[0, 1], [1, 2], [2, 4], [4, 5]]),
        numbers=torch.tensor([[2, 1], [0, 3], [1, 0], [2, 0]]),
        scores=torch.tensor([[0, -torch.inf, -torch.inf], [0, 2.0, -torch.inf], [0, -1.0, -2.0], [0, 0.5, 0.7]]),
        candidates=torch.zeros(0, 2),
        mention_scores=torch.zeros(0),
    )
    assert output.best().tolist() == [-1, 0, -1, 0]
    assert output.clusters() == [[(0, 1), (1, 2), (4, 5)]]
