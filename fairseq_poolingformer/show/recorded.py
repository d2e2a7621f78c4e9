"""The places of a document that a model looks at: levels one and two, and the summary's attention to the document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairseq_poolingformer.attention.modules import TwoLevelAttention
from fairseq_poolingformer.attention.probabilities import BandWeights, LevelWeights
from fairseq_poolingformer.attention.recorded_weights import recorded_calls, recorded_weights
from fairseq_poolingformer.models.decoder import CrossAttention
from fairseq_poolingformer.models.hub import PoolingformerHubInterface, PoolingformerRobertaHubInterface
from fairseq_poolingformer.show.looks import (
    CROSS,
    ONE,
    TWO,
    Look,
    Passages,
    Shares,
    WordLook,
    mean_rows,
    seen_passages,
    to_passages,
)
from fairseq_poolingformer.show.subject import Subject

MOST_WORDS = 20


@torch.no_grad()
def look(
    hub: PoolingformerHubInterface | PoolingformerRobertaHubInterface,
    text: str,
    *,
    summary: str | None = None,
    words: Sequence[str] = (),
    title: str = "document",
    model: str = "",
    **generation: Any,
) -> Look:
    """Run a model on a document and sum its attention up to sentences."""
    if not any(isinstance(module, TwoLevelAttention) for module in hub.model.modules()):
        raise ValueError("the model has full attention, which is not shown: convert it with --arch of a long model")
    document = Passages.sentences(text)
    if not len(document):
        raise ValueError("the document has no text in it")
    subject = Subject(hub)
    ids, tokens = _encode(subject, text, subject.limit)
    chosen = _places_of_words(text, tokens, words)
    count = len(document) + 1  # the last one: <s> and </s>
    passage = torch.tensor([count - 1, *document.of_characters(tokens[:, 0]), count - 1], device=subject.device)

    def keep(weights: LevelWeights) -> dict[str, _Seen]:
        levels = {ONE: weights.level_one, TWO: weights.level_two}
        return {kind: _seen(level, passage, count, chosen) for kind, level in levels.items() if level is not None}

    def keep_cross(module: CrossAttention, *args: Any, **inputs: Any) -> Tensor:
        weights = module.weights(inputs["query"], inputs["key"], inputs.get("key_padding_mask"))
        return to_passages(weights[0].mean(0), passage, count)

    hub.model.eval()
    pieces, previous, cross = None, None, {}
    if subject.writes:
        summary = subject.summarize(text, title, **generation) if summary is None else summary
        written, pieces = _encode(subject, summary, subject.summary_limit)
        previous = subject.framed(written).roll(1, dims=1)  # </s> first, as in training
    with recorded_weights(subject.model, keep) as layers:
        if previous is None:
            subject.run(subject.framed(ids), None)
        else:
            with recorded_calls(subject.model, CrossAttention, keep_cross) as cross:
                subject.run(subject.framed(ids), previous)
    levels = _by_level(layers.values())
    views = {
        kind: Shares(list(own), np.stack([seen.passages for seen in own.values()])) for kind, own in levels.items()
    }
    word_looks = []
    for n, (first, last) in enumerate(chosen):
        on_tokens = {kind: np.stack([seen.words[n] for seen in own.values()]) for kind, own in levels.items()}
        word_looks.append(WordLook((int(tokens[first, 0]), int(tokens[last - 1, 1])), on_tokens))
    shared = {"title": title, "model": model, "document": document, "tokens": tokens, "words": word_looks}
    shared["read"] = len(text) if len(ids) < subject.limit else int(tokens[-1, 1])
    if pieces is None:
        return Look(views=views, **shared)
    sentences = Passages.sentences(summary)
    # the query at place t chooses token t, <s> first
    cross_weights = [weights[1 : 1 + len(pieces)].cpu().numpy() for weights in cross.values()]
    on_passages, group = np.stack(cross_weights), sentences.of_characters(pieces[:, 0])
    by_sentence = np.stack([mean_rows(layer, group, len(sentences)) for layer in on_passages])
    views = {CROSS: Shares(list(range(len(on_passages))), by_sentence), **views}
    return Look(views=views, summary=sentences, pieces=pieces, piece_weights=on_passages.mean(0), **shared)


class _Seen(NamedTuple):
    """Attention of one level of a layer, the mean of all heads."""

    passages: np.ndarray
    words: list[np.ndarray]


def _seen(level: BandWeights, passage: Tensor, count: int, words: Sequence[tuple[int, int]]) -> _Seen:
    on_tokens = []
    for first, last in words:
        rows = torch.stack([level.of_query(1 + token)[0].mean(0) for token in range(first, last)])
        on_tokens.append(level.over_tokens(rows).mean(0)[1:-1].cpu().numpy())
    return _Seen(seen_passages(level, passage, count)[:-1].cpu().numpy(), on_tokens)


def _by_level(layers: Iterable[dict[str, _Seen]]) -> dict[str, dict[int, _Seen]]:
    """Return what each layer looks at, by level; a level that no layer has is left out."""
    levels: dict[str, dict[int, _Seen]] = {}
    for number, layer in enumerate(layers):
        for kind, seen in layer.items():
            levels.setdefault(kind, {})[number] = seen
    return levels


def _encode(subject: Subject, text: str, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first ``limit`` tokens of a text, (T,), and their characters, (T, 2)."""
    ids, spans = subject.encode(text)
    return ids[:limit], spans[:limit]


def _places_of_words(text: str, tokens: np.ndarray, words: Sequence[str]) -> list[tuple[int, int]]:
    """Return the tokens ``[first, last)`` of the first places of some words."""
    places = []
    for word in words:
        begin = text.find(word) if word else -1
        spans = []
        while begin >= 0 and len(spans) < MOST_WORDS:
            inside = np.flatnonzero((tokens[:, 0] < begin + len(word)) & (tokens[:, 1] > begin))
            if len(inside):
                spans.append((int(inside[0]), int(inside[-1]) + 1))
            begin = text.find(word, begin + len(word))
        if not spans:
            raise ValueError(f"--word {word!r} is not in what the model read of the document")
        places += spans
    return places
