"""Coarse-to-fine, higher-order coreference written from Lee et al. (2018) with loops over spans and antecedents."""

import math

import torch

from tests.tasks.coreference.official_coreference import crosses


def linear(layer, vector):
    return layer.weight @ vector + layer.bias


def feed_forward(network, vector):
    inner, outer = network[0], network[3]
    return linear(outer, linear(inner, vector).clamp(min=0))[0]


def bucket(distance):
    """0, 1, 2, 3, 4, 5–7, 8–15, 16–31, 32–63, 64 and more."""
    return distance if distance <= 4 else min(int(math.log2(distance)) + 3, 9)


def representation(head, tokens, document, span):
    start, end = span
    begin, last = int(document["word_starts"][start]), int(document["word_ends"][end - 1]) - 1
    logits = torch.stack([linear(head.attention, tokens[t])[0] for t in range(begin, last + 1)])
    weights = torch.exp(logits) / torch.exp(logits).sum()
    attended = sum(weight * tokens[t] for weight, t in zip(weights, range(begin, last + 1), strict=True))
    return torch.cat([tokens[begin], tokens[last], attended, head.span_width.weight[end - start - 1]])


def kept_spans(head, tokens, document):
    """The kept spans in order, with their representations and mention scores."""
    sentences = document["sentences"].tolist()
    words = len(sentences)
    candidates = []
    for start in range(words):
        for end in range(start + 1, min(words, start + head.max_span_width) + 1):
            if sentences[start] == sentences[end - 1]:
                g = representation(head, tokens, document, (start, end))
                prior = feed_forward(head.width_prior_score, head.width_prior.weight[end - start - 1])
                candidates.append(((start, end), g, feed_forward(head.mention, g) + prior))
    chosen = []
    for candidate in sorted(candidates, key=lambda candidate: -candidate[2].item()):
        if len(chosen) < max(1, int(head.span_ratio * words)) and not any(crosses(candidate[0], k[0]) for k in chosen):
            chosen.append(candidate)
    return sorted(chosen, key=lambda candidate: candidate[0])


def coarse_scores(head, kept):
    """For each span, {antecedent: coarse score} of those that are kept."""
    best_scores = []
    for i, (_, g, s) in enumerate(kept):
        scores = {}
        for j in range(i):
            prior = linear(head.distance_prior_score, head.distance_prior.weight[bucket(i - j)])[0]
            scores[j] = s + kept[j][2] + linear(head.coarse, g) @ kept[j][1] + prior
        best = sorted(scores, key=lambda j: -scores[j].item())[: head.max_antecedents]
        best_scores.append({j: scores[j] for j in best})
    return best_scores


def fine_scores(head, tokens, document):
    """The kept spans, and for each {antecedent: final score}; the score of none is 0."""
    spans = kept_spans(head, tokens, document)
    coarse = coarse_scores(head, spans)
    g = [vector for _, vector, _ in spans]
    borders = document["segment_sizes"].cumsum(0).tolist()
    starts = [span[0] for span, _, _ in spans]
    segments = [sum(border <= document["word_starts"][start] for border in borders) for start in starts]
    speakers = [int(document["speakers"][start]) for start in starts]
    for round_ in range(head.depth):
        scores = []
        for i in range(len(spans)):
            scores.append({})
            for j, score in coarse[i].items():
                apart = min(segments[i] - segments[j], head.segment_distance.num_embeddings - 1)
                features = [
                    head.same_speaker.weight[int(speakers[i] == speakers[j])],
                    head.genre.weight[document["genre"]],
                    head.distance.weight[bucket(i - j)],
                    head.segment_distance.weight[apart],
                ]
                scores[i][j] = score + feed_forward(head.fine, torch.cat([g[i], g[j], g[i] * g[j], *features]))
        if round_ < head.depth - 1:
            refined = []
            for i in range(len(spans)):
                exponents = {j: torch.exp(score) for j, score in scores[i].items()}
                total = 1 + sum(exponents.values())
                attended = (g[i] + sum(exponents[j] * g[j] for j in exponents)) / total
                f = torch.sigmoid(linear(head.gate, torch.cat([g[i], attended])))
                refined.append(f * attended + (1 - f) * g[i])
            g = refined
    return [span for span, _, _ in spans], scores


def loss(spans, scores, mentions):
    """−Σ log of the right antecedents' share, none being right where no earlier span is of the same entity."""
    entity_of = {(start, end): entity for start, end, entity in mentions.tolist()}
    total = 0.0
    for i, span in enumerate(spans):
        entity = entity_of.get(span)
        right = [j for j in scores[i] if entity is not None and entity_of.get(spans[j]) == entity]
        everything = 1 + sum(torch.exp(score) for score in scores[i].values())
        of_right = sum(torch.exp(scores[i][j]) for j in right) if right else torch.ones(())
        total = total - torch.log(of_right / everything)
    return total
