"""Spans of words that may be mentions: which a document has, which are kept, and the entities that links make of them.

A span is half-open, in words of a document: two columns, start and end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Antecedents(NamedTuple):
    """The scored antecedents of the spans that are kept of a document.

    Attributes:
        spans: (K, 2) their words, half-open, ascending.
        numbers: (K, A) the numbers of their antecedents among them; those from the span itself on are none.
        scores: (K, A + 1) float32: no antecedent, which is 0, then the antecedents; −∞ for those that are none.
        candidates: (M, 2) all spans, kept or not.
        mention_scores: (M,) float32 scores of the candidates, by which the best were kept.
    """

    spans: Tensor
    numbers: Tensor
    scores: Tensor
    candidates: Tensor
    mention_scores: Tensor

    def best(self) -> Tensor:
        """(K,) the number of the antecedent with the highest score, −1 for none."""
        choice = self.scores.argmax(1)
        chosen = self.numbers.gather(1, (choice - 1).clamp(min=0)[:, None]).squeeze(1)
        return torch.where(choice > 0, chosen, -1)

    def clusters(self) -> list[list[tuple[int, int]]]:
        """The entities that the best antecedents make."""
        return link_clusters(list(map(tuple, self.spans.tolist())), self.best().tolist())


def candidate_spans(sentences: np.ndarray, max_width: int) -> np.ndarray:
    """(M, 2) the spans of up to ``max_width`` words in one of (W,) words' sentences, ascending by start and end."""
    words = len(sentences)
    starts = np.arange(words)[:, None]
    ends = starts + 1 + np.arange(max_width)
    last = np.minimum(ends, words) - 1
    is_span = (ends <= words) & (sentences[last] == sentences[:, None])
    return np.stack([np.broadcast_to(starts, ends.shape)[is_span], ends[is_span]], axis=1)


def keep_spans(spans: np.ndarray, scores: np.ndarray, limit: int) -> np.ndarray:
    """Choose spans by score, best first, skipping each that crosses one chosen before (Lee et al., 2018).

    Two spans cross where they have words in common, and each has a word that the other lacks.
    """
    words = int(spans[:, 1].max(initial=0))
    latest_end = np.full(words + 1, -1)  # of the chosen spans that start at a word
    earliest_start = np.full(words + 1, words + 1)  # of the chosen spans that end before a word
    chosen: list[int] = []
    for number in np.argsort(-scores, kind="stable").tolist():
        if len(chosen) == limit:
            break
        start, end = spans[number].tolist()
        if end - start > 1 and (
            latest_end[start + 1 : end].max() > end or earliest_start[start + 1 : end].min() < start
        ):
            continue
        latest_end[start] = max(latest_end[start], end)
        earliest_start[end] = min(earliest_start[end], start)
        chosen.append(number)
    return np.sort(np.array(chosen, dtype=np.int64))


def link_clusters(spans: Sequence[tuple[int, int]], antecedents: Sequence[int]) -> list[list[tuple[int, int]]]:
    """The entities of two mentions or more that spans make with their antecedents, numbers of earlier ones or −1."""
    cluster_of = np.arange(len(spans))
    for number, antecedent in enumerate(antecedents):
        if antecedent >= 0:
            cluster_of[number] = cluster_of[antecedent]
    clusters: dict[int, list[tuple[int, int]]] = {}
    for span, cluster in zip(spans, cluster_of.tolist(), strict=True):
        clusters.setdefault(cluster, []).append(span)
    return [cluster for cluster in clusters.values() if len(cluster) > 1]
