"""The likeliest answers in a segment of a text, and their characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

OUTSIDE = -10000.0  # the logit of a token that is not of the context


def best_spans(
    start: Tensor, end: Tensor, in_context: Sequence[bool], *, count: int, longest: int
) -> tuple[list[tuple[int, int, float]], float]:
    """The likeliest spans of a segment, in memory linear in its length.

    Args:
        start, end: (T,) logits.
        in_context: whether a token can be a part of an answer; of the first one, whether it says that there is none.
        count: how many spans.
        longest: tokens of a span.

    Returns:
        Up to ``count`` spans: first token, last token, probability; and the probability that there is none.
    """
    allowed = torch.tensor(in_context, device=start.device)
    start, end = (torch.where(allowed, x.float(), OUTSIDE).softmax(0) for x in (start, end))
    none = float(start[0] * end[0])
    allowed[0] = False
    last = F.pad(torch.where(allowed, end, -1.0), (0, longest - 1), value=-1.0).unfold(0, longest, 1)
    scores = torch.where(allowed[:, None] & (last >= 0.0), start[:, None] * last, -1.0).flatten()
    best = scores.topk(min(count, len(scores)))
    spans = (
        (*divmod(place, longest), score)
        for place, score in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    )
    return [(first, first + length, score) for first, length, score in spans if score >= 0.0], none


def characters(encoding: Any, first: int, last: int, align_to_words: bool) -> tuple[int, int]:
    """Where a span of tokens begins and ends in the context; by whole words where the tokenizer has some."""
    start, end = encoding.offsets[first][0], encoding.offsets[last][1]
    words = encoding.token_to_word(first), encoding.token_to_word(last)
    if not align_to_words or None in words:
        return start, end
    sequence = encoding.token_to_sequence(first)
    first_word, last_word = (encoding.word_to_chars(word, sequence) for word in words)
    return first_word[0] if first_word else start, last_word[1] if last_word else end
