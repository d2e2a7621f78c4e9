"""The places of a document that a model looks at: levels one and two, and the summary's attention to the document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

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
    chosen = _places_of_words(text, tokens, words)
    count = len(document) + 1  # the last one: <s> and </s>
    passage = torch.tensor([count - 1, *document.of_characters(tokens[:, 0]), count - 1], device=hub.device)

    def keep(weights: LevelWeights) -> dict[str, _Seen]:
        levels = {ONE: weights.level_one, TWO: weights.level_two}
        return {kind: _seen(level, passage, count, chosen) for kind, level in levels.items() if level is not None}

    hub.model.eval()
    if writes and summary is None:
        (summary,) = hub.summarize(text, names=[title], **generation)
    with recorded_weights(hub.model, keep) as layers, recorded_cross_attention(hub.model, passage, count) as cross:
        pieces = _run(hub, tokenizer, ids, summary if writes else None)
    levels = _by_level(layers.values())
    views = {kind: View(list(own), np.stack([seen.passages for seen in own.values()])) for kind, own in levels.items()}
    word_looks = []
    for n, (first, last) in enumerate(chosen):
        on_tokens = {kind: np.stack([seen.words[n] for seen in own.values()]) for kind, own in levels.items()}
        word_looks.append(WordLook((int(tokens[first, 0]), int(tokens[last - 1, 1])), on_tokens))
    shared = {"title": title, "model": model, "document": document, "tokens": tokens, "words": word_looks}
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


class _Seen(NamedTuple):
    """What one level of a layer looks at, the mean of all heads.

    Args:
        passages: (P, P + 1) from each passage to each, the last of which holds ``<s>`` and ``</s>``.
        words: of each chosen word (T,) from its tokens to the document's.
    """

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


def _run(
    hub: PoolingformerHubInterface | PoolingformerRobertaHubInterface,
    tokenizer: Tokenizer,
    ids: np.ndarray,
    summary: str | None,
) -> np.ndarray | None:
    """Run a model on a document and, if there is one, its summary; returns the characters of the summary's tokens."""
    source = _framed(hub, ids)
    if summary is None:
        hub.model(source, features_only=True)
        return None
    written, pieces = _encode(tokenizer, summary, hub.model.decoder.max_positions() - 2)
    previous = _framed(hub, written).roll(1, dims=1)  # </s> first, as in training
    hub.model(source, None, previous, features_only=True)
    return pieces


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
