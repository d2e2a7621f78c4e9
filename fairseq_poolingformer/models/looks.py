"""The places of a document that a model looks at: levels one and two, and the summary's attention to the document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_poolingformer.attention.modules import TwoLevelAttention
from fairseq_poolingformer.attention.recorded_weights import recorded_calls, recorded_weights
from fairseq_poolingformer.attention.weights import BandWeights, LevelWeights
from fairseq_poolingformer.models.hub import PoolingformerHubInterface, PoolingformerRobertaHubInterface
from fairseq_poolingformer.modules.decoder import CrossAttention
from fairseq_poolingformer.show.looks import (
    CROSS,
    ONE,
    TWO,
    Look,
    View,
    WordLook,
    mean_rows,
    seen_passages,
    to_passages,
)
from fairseq_poolingformer.show.passages import Passages, characters
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

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
    """Run a model on a document and sum its attention up to sentences.

    Args:
        hub: the result of ``PoolingformerBART.from_pretrained`` or ``PoolingformerRoberta.from_pretrained``.
        text: the document; the model reads as much as it takes.
        summary: the summary whose attention is wanted; None lets the model write one.
        words: words of the document; each of their first places is shown token by token.
        title, model: for the page.
        generation: options of :meth:`PoolingformerHubInterface.summarize`.

    Returns:
        What it looked at. In a notebook it shows itself.

    Raises:
        ValueError: there is no text, a word is not in what the model read, the tokenizer has no offsets, or the model
            has full attention.
    """
    if not any(isinstance(module, TwoLevelAttention) for module in hub.model.modules()):
        raise ValueError("the model has full attention, which is not shown: convert it with --arch of a long model")
    document = Passages.sentences(text)
    if not len(document):
        raise ValueError("the document has no text in it")
    tokenizer = _tokenizer(hub)
    writes = isinstance(hub, PoolingformerHubInterface)
    limit = hub.max_source_tokens if writes else hub.model.max_positions() - 2
    ids, tokens = _encode(tokenizer, text, limit)
    count = len(document) + 1  # the last one: <s> and </s>
    places = document.of_characters(tokens[:, 0])
    passage = torch.tensor([count - 1, *places, count - 1], device=hub.device)
    chosen = _places_of_words(text, tokens, words)

    def reduced(level: BandWeights | None) -> tuple[Tensor, Tensor] | None:
        if level is None:
            return None
        rows = [level.of_query(1 + token)[0].mean(0) for first, last in chosen for token in range(first, last)]
        on_tokens = level.over_tokens(torch.stack(rows)) if rows else torch.zeros(0, len(passage))
        return seen_passages(level, passage, count).cpu(), on_tokens.cpu()

    def keep(weights: LevelWeights) -> tuple[tuple[Tensor, Tensor] | None, ...]:
        return reduced(weights.level_one), reduced(weights.level_two)

    hub.model.eval()
    if writes and summary is None:
        (summary,) = hub.summarize(text, names=[title], **generation)
    with recorded_weights(hub.model, keep) as levels, recorded_cross_attention(hub.model, passage, count) as cross:
        source = _framed(hub, ids)
        if writes:
            written, pieces = _encode(tokenizer, summary, hub.model.decoder.max_positions() - 2)
            target = _framed(hub, written)
            previous = target.roll(1, dims=1)  # </s> first, as in training
            hub.model(source, None, previous, features_only=True)
        else:
            hub.model(source, features_only=True)
    layers = list(levels.values())
    found = {kind: [(number, layer[i]) for number, layer in enumerate(layers) if layer[i] is not None]
             for i, kind in enumerate((ONE, TWO))}  # fmt: skip
    views = {
        kind: View([number for number, _ in own], np.stack([kept[0].numpy() for _, kept in own])[:, :-1])
        for kind, own in found.items()
        if own
    }
    lookers = []
    first = 0
    for begin, end in chosen:
        rows = slice(first, first + end - begin)
        on_tokens = {
            kind: np.stack([kept[1][rows].mean(0)[1:-1].numpy() for _, kept in own])
            for kind, own in found.items()
            if own
        }
        lookers.append(WordLook((int(tokens[begin, 0]), int(tokens[end - 1, 1])), on_tokens))
        first += end - begin
    shared = {"title": title, "model": model, "document": document, "tokens": tokens, "words": lookers}
    shared["read"] = len(text) if len(ids) < limit else int(tokens[-1, 1])
    if not writes:
        return Look(views=views, **shared)
    sentences = Passages.sentences(summary)
    # the query at place t chooses token t, <s> first
    on_passages = np.stack([weights[1 : 1 + len(pieces)].cpu().numpy() for weights in cross.values()])
    group = sentences.of_characters(pieces[:, 0])
    by_sentence = np.stack([mean_rows(layer, group, len(sentences)) for layer in on_passages])
    views = {CROSS: View(list(range(len(on_passages))), by_sentence), **views}
    return Look(views=views, summary=sentences, pieces=pieces, piece_weights=on_passages.mean(0), **shared)


@contextmanager
def recorded_cross_attention(model: nn.Module, passage: Tensor, count: int) -> Iterator[dict[str, Tensor]]:
    """Record the decoder's attention to passages of the source while the block runs.

    Args:
        model: a Poolingformer-BART that gets one row.
        passage: (S,) the passage of each source token.
        count: number of passages.

    Yields:
        A dict: the name of each layer's attention -> (T, count) weights, the mean of all heads.
    """

    def record(module: CrossAttention, **inputs: Any) -> Tensor:
        weights = module.weights(inputs["query"], inputs["key"], inputs.get("key_padding_mask"))
        return to_passages(weights[0].mean(0), passage, count)

    with recorded_calls(model, CrossAttention, record) as found:
        yield found


def _tokenizer(hub: PoolingformerHubInterface | PoolingformerRobertaHubInterface) -> Tokenizer:
    tokenizer = getattr(hub.bpe, "tokenizer", None)
    if not isinstance(tokenizer, Tokenizer):
        raise ValueError("the model's --bpe does not tell where tokens lie: load it with a data folder's tokenizer/")
    return tokenizer


def _encode(tokenizer: Tokenizer, text: str, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first ``limit`` tokens of a text, (T,), and their characters, (T, 2)."""
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    spans = np.stack([characters(text, starts[:limit]), characters(text, ends[:limit])], axis=1)
    return ids[:limit], spans


def _framed(hub: PoolingformerHubInterface | PoolingformerRobertaHubInterface, ids: np.ndarray) -> Tensor:
    """Return (1, T + 2) indices: <s>, the tokens, </s>."""
    dictionary = hub.task.source_dictionary
    return torch.tensor([[dictionary.bos(), *ids.tolist(), dictionary.eos()]], device=hub.device)


def _places_of_words(text: str, tokens: np.ndarray, words: Sequence[str]) -> list[tuple[int, int]]:
    """Return the tokens ``[first, last)`` of the first places of some words."""
    places = []
    for word in words:
        begin = text.find(word) if word else -1
        found = []
        while begin >= 0 and len(found) < MOST_WORDS:
            inside = np.flatnonzero((tokens[:, 0] < begin + len(word)) & (tokens[:, 1] > begin))
            if len(inside):
                found.append((int(inside[0]), int(inside[-1]) + 1))
            begin = text.find(word, begin + len(word))
        if not found:
            raise ValueError(f"--word {word!r} is not in what the model read of the document")
        places += found
    return places
