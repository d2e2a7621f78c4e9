"""Coarse-to-fine, higher-order coreference on an encoder's features (Lee et al., 2018; Joshi et al., 2019).

Spans and pairs are visited in blocks, whose inner values are computed again in the backward pass. So memory is that of
a block and, for k kept spans, of k × k scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fairseq_poolingformer.tasks.coreference.data import GENRES
from fairseq_poolingformer.tasks.shared.heads import initialize, wide


class Antecedents(NamedTuple):
    """The scored antecedents of the spans that are kept of a document."""

    spans: Tensor  # (K, 2) their words, half-open, ascending
    numbers: Tensor  # (K, A) the numbers of their antecedents among them; those from the span itself on are none
    scores: Tensor  # (K, A + 1) float32: no antecedent, which is 0, then the antecedents; −∞ for those that are none
    candidates: Tensor  # (M, 2) all spans, kept or not
    mention_scores: Tensor  # (M,) float32 scores of the candidates, by which the best were kept

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
    """Choose spans by score, best first, skipping each that partly overlaps a chosen one (Lee et al., 2018)."""
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


SPANS_OF_A_BLOCK, PAIRS_OF_A_BLOCK = 1024, 4096
DISTANCES = (1, 2, 3, 4, 5, 8, 16, 32, 64)  # where a bucket of distances, counted in kept spans, begins


class CoreferenceHead(nn.Module):
    """Scores antecedents of the spans of words that are most probably mentions.

    A span's representation is g = [h_start; h_end; Σ a_t h_t; width], a the softmax of a linear score within the span;
    its mention score is ``s_m(i) = FFN(g_i) + width``. Of a document of n words the best ``span_ratio`` · n spans that
    do not cross are kept. Of the earlier ones each keeps the ``max_antecedents`` with the highest coarse score
    ``s_m(i) + s_m(j) + g_iᵀ W g_j + distance``; the fine score adds ``FFN([g_i; g_j; g_i∘g_j; features])`` with
    embeddings of same speaker, genre, distance in spans and distance in segments. Between the ``depth`` rounds of fine
    scores each g_i is refined: ``f∘a_i + (1 − f)∘g_i``, a_i the mean of its antecedents and itself under the scores'
    softmax, f a gate of both.
    """

    def __init__(
        self,
        embed_dim: int,
        segment_distances: int = 3,
        max_span_width: int = 30,
        span_ratio: float = 0.4,
        max_antecedents: int = 50,
        depth: int = 2,
        hidden: int = 3000,
        feature_size: int = 20,
        dropout: float = 0.3,
        train_all_spans: bool = False,
    ) -> None:
        super().__init__()
        sizes = {
            "max_span_width": max_span_width,
            "max_antecedents": max_antecedents,
            "depth": depth,
            "hidden": hidden,
            "feature_size": feature_size,
            "segment_distances": segment_distances,
        }
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")
        if not 0 < span_ratio < math.inf:
            raise ValueError(f"span_ratio must be more than 0 and finite, got {span_ratio}")
        self.max_span_width, self.span_ratio, self.depth = max_span_width, span_ratio, depth
        self.max_antecedents, self.train_all_spans = max_antecedents, train_all_spans
        width = 3 * embed_dim + feature_size

        def scorer(inputs: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 1))

        self.dropout = nn.Dropout(dropout)
        self.attention = nn.Linear(embed_dim, 1)
        self.span_width = nn.Embedding(max_span_width, feature_size)
        self.mention = scorer(width)
        self.width_prior = nn.Embedding(max_span_width, feature_size)
        self.width_prior_score = scorer(feature_size)
        self.coarse = nn.Linear(width, width)
        self.distance_prior = nn.Embedding(len(DISTANCES) + 1, feature_size)
        self.distance_prior_score = nn.Linear(feature_size, 1)
        self.same_speaker = nn.Embedding(2, feature_size)
        self.genre = nn.Embedding(len(GENRES) + 1, feature_size)
        self.distance = nn.Embedding(len(DISTANCES) + 1, feature_size)
        self.segment_distance = nn.Embedding(segment_distances, feature_size)
        self.fine = scorer(3 * width + 4 * feature_size)
        if depth > 1:
            self.gate = nn.Linear(2 * width, width)
        initialize(self)

    def forward(
        self,
        features: Tensor,
        example: Tensor,
        num_examples: int,
        segment_sizes: list[Tensor],
        word_starts: list[Tensor],
        word_ends: list[Tensor],
        sentences: list[Tensor],
        speakers: list[Tensor],
        genre: Tensor,
    ) -> list[Antecedents]:
        documents = zip(segment_sizes, word_starts, word_ends, sentences, speakers, genre, strict=True)
        antecedents = []
        for number, (sizes, *document) in enumerate(documents):
            segments = features[example == number][:, 1:]
            pieces = segments[torch.arange(segments.size(1), device=features.device) < sizes[:, None]]
            antecedents.append(self._document(pieces, sizes, *document))
        return antecedents

    def _document(
        self, pieces: Tensor, sizes: Tensor, starts: Tensor, ends: Tensor, sentences: Tensor, speakers: Tensor, genre
    ) -> Antecedents:
        words = candidate_spans(sentences.cpu().numpy(), self.max_span_width)
        spans = _Spans(words, starts.cpu().numpy(), ends.cpu().numpy(), pieces.device)
        # of these spans few are kept, and no others get a gradient from their antecedents
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.train_all_spans):
            every = [self._block(self._represent_and_score, pieces, *block)[1] for block in spans.blocks()]
            mention_scores = torch.cat(every)
        limit = max(1, int(self.span_ratio * len(starts)))
        chosen = keep_spans(words, mention_scores.detach().float().cpu().numpy(), limit)
        candidates = spans.words

        spans = _Spans(words[chosen], starts.cpu().numpy(), ends.cpu().numpy(), pieces.device)
        blocks = [self._block(self._represent_and_score, pieces, *block) for block in spans.blocks()]
        vectors, scores = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        numbers, coarse = self._coarse(vectors, scores)
        segment = torch.searchsorted(sizes.cumsum(0), spans.first, right=True)
        relations = (speakers[spans.words[:, 0]], segment, genre)
        width, first = vectors.size(1), self.fine[0]
        for left in reversed(range(self.depth)):
            # (K, hidden) each: the parts of g_i and of g_j in the hidden layer of a pair, computed once a span
            anaphor, antecedent = first.weight[:, :width], first.weight[:, width : 2 * width]
            sides = F.linear(vectors, anaphor, first.bias), F.linear(vectors, antecedent)
            rows = range(0, len(vectors), max(1, PAIRS_OF_A_BLOCK // numbers.size(1)))
            blocks = [
                self._block(self._fine, vectors, sides, numbers, coarse, relations, row, row + rows.step)
                for row in rows
            ]
            fine, attended = (torch.cat(parts) for parts in zip(*blocks, strict=True))
            if left:
                # g_i <- f∘a_i + (1 − f)∘g_i (as the authors' code; their paper exchanges f and 1 − f)
                gate = torch.sigmoid(self.gate(torch.cat([vectors, attended], 1)))
                vectors = gate * attended + (1 - gate) * vectors
        return Antecedents(spans.words, numbers, fine, candidates, mention_scores)

    @staticmethod
    def _block(function: Callable[..., Any], *args: Any) -> Any:
        """Call a function whose inner values the backward pass computes again."""
        if torch.is_grad_enabled():
            return checkpoint(function, *args, use_reentrant=False)
        return function(*args)

    def _represent_and_score(
        self, pieces: Tensor, first: Tensor, end: Tensor, width: Tensor, low: int, high: int
    ) -> tuple[Tensor, Tensor]:
        """(M, 3C + F) g and (M,) s_m of spans that lie in the pieces from ``low`` to ``high``."""
        pieces, first, end = pieces[low:high], first - low, end - low
        position = torch.arange(high - low, device=pieces.device)
        inside = (position >= first[:, None]) & (position < end[:, None])
        # g = [h_start; h_end; Σ a_t h_t; width], a the softmax within the span (Lee et al. 2017)
        attention = wide(self.attention(pieces)).squeeze(1).expand_as(inside).masked_fill(~inside, -torch.inf)
        head = attention.softmax(1).to(pieces.dtype) @ pieces
        vectors = torch.cat([pieces[first], pieces[end - 1], head, self.dropout(self.span_width(width - 1))], 1)
        prior = self.width_prior_score(self.width_prior.weight)[width - 1]
        return vectors, wide(self.mention(vectors) + prior).squeeze(1)

    def _coarse(self, vectors: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """(K, A) the numbers of the antecedents that each span keeps, and their coarse scores."""
        count = len(vectors)
        # s_m(i) + s_m(j) + s_c(i, j), s_c = g_iᵀ W g_j (Lee et al. 2018), and a score of the distance
        source, target = self.dropout(self.coarse(vectors)), self.dropout(vectors)
        bilinear = wide(source @ target.T)
        prior = wide(self.distance_prior_score(self.dropout(self.distance_prior.weight))).squeeze(1)
        number = torch.arange(count, device=vectors.device)
        chosen = []
        with torch.no_grad():
            for rows in number.split(SPANS_OF_A_BLOCK):
                distance = rows[:, None] - number
                total = bilinear[rows] + scores[rows, None] + scores + prior[_bucket(distance)]
                total = total.masked_fill(distance < 1, -torch.inf)  # earlier spans alone are antecedents
                chosen.append(total.topk(min(self.max_antecedents, count)).indices)
        numbers = torch.cat(chosen)  # the first spans have fewer earlier ones than A; _fine hides the others
        distance = _bucket(number[:, None] - numbers)
        return numbers, bilinear.gather(1, numbers) + scores[:, None] + scores[numbers] + prior[distance]

    def _fine(
        self,
        vectors: Tensor,
        sides: tuple[Tensor, Tensor],
        numbers: Tensor,
        coarse: Tensor,
        relations: tuple[Tensor, Tensor, Tensor],
        row: int,
        end: int,
    ) -> tuple[Tensor, Tensor]:
        """Score the antecedents of the spans from ``row`` to ``end``; also return what their softmax attends to."""
        speakers, segments, genre = relations
        numbers, coarse, anaphors = numbers[row:end], coarse[row:end], vectors[row:end]
        number = torch.arange(row, row + len(anaphors), device=anaphors.device)[:, None]
        distance = number - numbers
        segment_distance = (segments[number] - segments[numbers]).clamp(0, self.segment_distance.num_embeddings - 1)
        features = [
            self.same_speaker((speakers[number] == speakers[numbers]).long()),
            self.genre(genre).expand(*numbers.shape, -1),
            self.distance(_bucket(distance)),
            self.segment_distance(segment_distance),
        ]
        other = vectors[numbers]
        pairs = torch.cat([anaphors[:, None] * other, self.dropout(torch.cat(features, 2))], 2)
        # the first layer on [g_i; g_j; g_i∘g_j; features], a block of its columns at a time
        hidden = sides[0][row:end, None] + sides[1][numbers]
        hidden = hidden + F.linear(pairs, self.fine[0].weight[:, 2 * vectors.size(1) :])
        scores = coarse + wide(self.fine[1:](hidden)).squeeze(2)
        # the score of no antecedent is 0
        scores = torch.cat([torch.zeros_like(scores[:, :1]), scores.masked_fill(distance < 1, -torch.inf)], 1)
        weights = scores.softmax(1).to(anaphors.dtype)  # a_i = P(none)·g_i + Σ P(j)·g_j
        return scores, weights[:, :1] * anaphors + (weights[:, None, 1:] @ other).squeeze(1)


class _Spans:
    """Spans of a document in words and in pieces, and the blocks in which they are visited."""

    def __init__(self, words: np.ndarray, starts: np.ndarray, ends: np.ndarray, device: torch.device) -> None:
        self._first, self._end = starts[words[:, 0]], ends[words[:, 1] - 1]
        self.words = torch.from_numpy(words).to(device)
        self.first, self.end = (torch.from_numpy(side).to(device) for side in (self._first, self._end))

    def blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor, int, int]]:
        """First and end pieces and width in words of the spans of a block, and the pieces in which they all lie."""
        widths = self.words[:, 1] - self.words[:, 0]
        for start in range(0, len(self.words), SPANS_OF_A_BLOCK):
            block = slice(start, start + SPANS_OF_A_BLOCK)
            low, high = int(self._first[start]), int(self._end[block].max())
            yield self.first[block], self.end[block], widths[block], low, high


def marginal_loss(output: list[Antecedents], mentions: list[Tensor]) -> Tensor:
    """Sum −log Σ P(j) over the right antecedents j of each kept span; without any, none is right (Lee et al., 2017)."""
    losses = []
    for (spans, numbers, scores, *_), rows in zip(output, mentions, strict=True):
        entity = _entities(spans, rows)
        before = numbers < torch.arange(len(spans), device=spans.device)[:, None]
        is_right = before & (entity[numbers] == entity[:, None]) & (entity > 0)[:, None]
        is_right = torch.cat([~is_right.any(1, keepdim=True), is_right], 1)  # none, where no kept one is right
        right = scores.masked_fill(~is_right, -torch.inf)
        # −log Σ_right P(j) = log Σ_all exp(s) − log Σ_right exp(s)
        losses.append((scores.logsumexp(1) - right.logsumexp(1)).sum())
    return torch.stack(losses).sum()


def mention_loss(output: list[Antecedents], mentions: list[Tensor]) -> Tensor:
    """Sum the binary cross entropies of the mention scores of all spans; arguments as :func:`marginal_loss`."""
    # beside the papers: without it, a span that is no mention can hide one that it crosses for good, as a span that
    # is not kept has no gradient; large corpora train mention scores by other documents
    losses = [
        F.binary_cross_entropy_with_logits(scores, (_entities(spans, rows) > 0).to(scores.dtype), reduction="sum")
        for (*_, spans, scores), rows in zip(output, mentions, strict=True)
    ]
    return torch.stack(losses).sum()


def _entities(spans: Tensor, mentions: Tensor) -> Tensor:
    """(K,) the entity of each span, 0 of one that is no mention."""
    is_mention = (spans[:, None] == mentions[:, :2]).all(2)
    return (is_mention * mentions[:, 2]).sum(1)


def _bucket(distance: Tensor) -> Tensor:
    """The number of a distance's bucket."""
    return torch.bucketize(distance, torch.tensor(DISTANCES, device=distance.device), right=True)
