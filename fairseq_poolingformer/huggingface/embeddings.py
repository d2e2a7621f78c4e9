"""Late chunking: a vector for each passage of a document, out of one pass over the whole document."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from fairseq_poolingformer.huggingface.short_models import longest_input

Span = tuple[int, int]


def embed_passages(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: str | Sequence[str],
    spans: Sequence[Span] | Sequence[Sequence[Span]],
    *,
    normalize: bool = False,
    batch_size: int = 8,
) -> Tensor | list[Tensor]:
    """Embed passages, each as the mean over its tokens, which have seen the whole document.

    A token belongs to each passage that has one of its characters, blanks aside; what the tokenizer puts before and
    after the text belongs to the passages with the first and the last token. So a passage that is the whole text has
    the vector of sentence-transformers' mean pooling. Gradients flow, unless under ``torch.no_grad()``.

    Args:
        model: any encoder of transformers', alone or under a head, or a model that has one beside its decoder.
        tokenizer: its fast tokenizer.
        texts: a document, or several.
        spans: of a document's P passages the first character and the one after the last; for several documents a list
            of such.
        normalize: make the vectors' length 1.
        batch_size: documents in a pass.

    Returns:
        (P, C), or for several documents a list of these.

    Raises:
        ValueError: the tokenizer is slow, a document is longer than the model, or a span is empty, lies outside of its
            document or has no token.
    """
    if isinstance(texts, str):
        return embed_passages(model, tokenizer, [texts], [spans], normalize=normalize, batch_size=batch_size)[0]
    if not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} does not say where its tokens lie in the text: give a fast one")
    if len(texts) != len(spans):
        raise ValueError(f"spans must have a list of passages for each of {len(texts)} documents, got {len(spans)}")
    for number, (text, of_text) in enumerate(zip(texts, spans, strict=True)):
        for start, end in of_text:
            if not 0 <= start < end <= len(text):
                raise ValueError(
                    f"document {number} of {len(text)} characters has the span ({start}, {end}): give the first "
                    "character and the one after the last"
                )
    encoder = model.base_model
    if encoder.config.is_encoder_decoder:
        encoder = encoder.get_encoder()
    vectors: dict[int, Tensor] = {}
    longest_first = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
    for first in range(0, len(texts), batch_size):
        numbers = longest_first[first : first + batch_size]
        encoded = _encode(encoder, tokenizer, [texts[number] for number in numbers])
        for number, (hidden, places, is_special) in zip(numbers, encoded, strict=True):
            bounds = _token_bounds(f"document {number}", texts[number], places, is_special, spans[number])
            means = [hidden[start:stop].mean(0) for start, stop in bounds]
            found = torch.stack(means) if means else hidden[:0]
            vectors[number] = F.normalize(found, dim=-1) if normalize else found
    return [vectors[number] for number in range(len(texts))]


def _encode(
    encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str]
) -> list[tuple[Tensor, np.ndarray, np.ndarray]]:
    """Of each document its tokens' vectors, (T, C), characters, (T, 2), and which are the tokenizer's own, (T,)."""
    batch = tokenizer(
        texts,
        padding=True,
        return_attention_mask=True,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
        return_tensors="pt",
        verbose=False,
    )
    places, is_special = batch.pop("offset_mapping"), batch.pop("special_tokens_mask").bool()
    longest, most = batch["input_ids"].size(1), longest_input(encoder)
    if longest > most:
        raise ValueError(
            f"a document has {longest} tokens and the model takes {most}: cut it where passages end, or take a longer "
            "model, as from_short makes one"
        )
    real = batch["attention_mask"].bool()
    hidden = encoder(**batch.to(encoder.device)).last_hidden_state
    return [
        (of_row[kept.to(of_row.device)], places[row, kept].numpy(), is_special[row, kept].numpy())
        for row, (of_row, kept) in enumerate(zip(hidden, real, strict=True))
    ]


def _token_bounds(
    name: str, text: str, places: np.ndarray, is_special: np.ndarray, spans: Sequence[Span]
) -> list[Span]:
    """The first token of each passage and the one after the last."""
    own = np.flatnonzero(~is_special)
    starts, ends = places[own].T.copy()
    for token, (start, end) in enumerate(places[own].tolist()):
        if piece := text[start:end].strip():  # tokens of blanks stay as they are
            starts[token] += text[start:end].index(piece)
            ends[token] = starts[token] + len(piece)
    starts = np.minimum(starts, len(text) - 1)
    ends = np.maximum(ends, starts + 1)  # RoBERTa's blanks lie in no character: they go with the next one
    bounds = []
    for start, end in spans:
        first, stop = int(np.searchsorted(ends, start, "right")), int(np.searchsorted(starts, end, "left"))
        if first >= stop:
            raise ValueError(f"{name} has no token in the span ({start}, {end}), {text[start:end]!r:.50}: leave it out")
        bounds.append(
            (0 if first == 0 else int(own[first]), len(places) if stop == len(own) else int(own[stop - 1]) + 1)
        )
    return bounds
