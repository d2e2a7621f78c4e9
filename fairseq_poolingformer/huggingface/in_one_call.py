"""Summaries of documents, and answers to questions about them, in one call: :func:`summarize`, :func:`answer`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForQuestionAnswering, AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

from fairseq_poolingformer.huggingface.short_models import UNLIMITED, longest_input

logger = logging.getLogger(__name__)

DEFAULTS = {"max_new_tokens": 256, "num_beams": 4}  # of models that do not have their own
STRIDE = 128  # the most tokens that two segments share
ANSWER_TOKENS = 30  # of the longest answer


@torch.no_grad()
def summarize(
    texts: str | Sequence[str], model: Any, *, tokenizer: Any = None, batch_size: int = 1, **generation: Any
) -> list[str]:
    """Summarize texts, each as far as the model reads; a warning says what it does not read.

    Args:
        texts: documents; one string is one document.
        model: a loaded model with a decoder, which stays on its device, or its folder or name.
        tokenizer: the model's; None for the one of its folder.
        batch_size: documents at a time.
        generation: arguments of ``generate``; without them the model's own count, or four beams and 256 tokens.

    Returns:
        A summary of each text.
    """
    model, tokenizer = _loaded(model, tokenizer, AutoModelForSeq2SeqLM)
    prefix, own = of_summaries(model.config)
    set_already = {*model.generation_config.to_diff_dict(), *own, *generation}
    lacking = {name: value for name, value in DEFAULTS.items() if name not in set_already}
    if "max_length" in set_already:
        lacking.pop("max_new_tokens", None)
    longest = longest_input(model, tokenizer)
    texts, found = [texts] if isinstance(texts, str) else list(texts), []
    for first in range(0, len(texts), batch_size):
        batch = [prefix + text for text in texts[first : first + batch_size]]
        for number, tokens in enumerate(tokenizer(batch, verbose=False)["input_ids"], first):
            if len(tokens) > longest:
                logger.warning("text %d has %d tokens; the model reads the first %d", number, len(tokens), longest)
        cut = {"truncation": True, "max_length": longest} if longest < UNLIMITED else {}
        inputs = tokenizer(batch, padding=True, return_token_type_ids=False, return_tensors="pt", **cut)
        written = model.generate(**inputs.to(model.device), **{**lacking, **own, **generation})
        found += tokenizer.batch_decode(written, skip_special_tokens=True)
    return found


def of_summaries(config: Any) -> tuple[str, dict[str, Any]]:
    """What a configuration puts before each text, such as T5's "summarize: ", and its arguments of ``generate``."""
    own = dict((getattr(config, "task_specific_params", None) or {}).get("summarization", {}))
    return own.pop("prefix", getattr(config, "prefix", None)) or "", own


@torch.no_grad()
def answer(
    question: str | Sequence[str],
    context: str,
    model: Any,
    *,
    tokenizer: Any = None,
    batch_size: int = 8,
    max_answer_tokens: int = ANSWER_TOKENS,
    max_tokens: int | None = None,
    doc_stride: int | None = None,
) -> dict[str, Any] | list[dict[str, Any]]:
    """Answer a question, or several, by words of a context of any length, which is read in segments where it is long.

    Args:
        question: one, or a list.
        context: the text with the answer.
        model: a loaded model with a head for question answering, which stays on its device, or its folder or name.
        tokenizer: the model's fast one; None for the one of its folder.
        batch_size: segments at a time.
        max_answer_tokens: tokens of the longest answer.
        max_tokens: tokens of a segment, the question included; None for as many as the model takes and its tokenizer
            says, which is for a model of poolingformer finetune what it was trained on.
        doc_stride: tokens that two segments share; None for 128, or a quarter of a short segment.

    Returns:
        For each question ``answer``, its ``start`` and ``end`` in characters of the context, its probability ``score``,
        and ``no_answer_score``, the least probability of a segment that it has none; where that is higher, the answer
        is empty; a model of poolingformer finetune has a threshold of its own.
    """
    model, tokenizer = _loaded(model, tokenizer, AutoModelForQuestionAnswering)
    if not isinstance(question, str):
        options = {"max_answer_tokens": max_answer_tokens, "max_tokens": max_tokens, "doc_stride": doc_stride}
        options |= {"tokenizer": tokenizer, "batch_size": batch_size}
        return [answer(each, context, model, **options) for each in question]
    if not question or not context:
        raise ValueError("the question or the context is empty: give both")
    if not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} does not say where its tokens lie in the text: give a fast one")
    longest = max_tokens or longest_input(model, tokenizer, decoder=model.config.is_encoder_decoder)
    stride = shared_tokens(longest) if doc_stride is None else doc_stride
    asked = len(tokenizer(question, add_special_tokens=False)["input_ids"])
    room = longest - asked - tokenizer.num_special_tokens_to_add(pair=True)
    if not 0 <= stride < room:
        raise ValueError(
            f"doc_stride must be less than the {room} tokens that a segment of {longest} has beside the question, got "
            f"{stride}: give a smaller one, or more max_tokens where the model takes more"
        )
    segments = tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=longest,
        stride=stride,
        return_overflowing_tokens=True,
        padding=True,
        padding_side="right",
        return_tensors="pt",
    )
    inputs = {name: segments[name] for name in tokenizer.model_input_names if name in segments}
    without_cache = {"use_cache": False} if model.config.is_encoder_decoder else {}
    empty = {"answer": "", "start": 0, "end": 0}
    best, least = {**empty, "score": 0.0}, 1.0
    for first in range(0, len(segments["input_ids"]), batch_size):
        rows = slice(first, first + batch_size)
        output = model(**{name: x[rows].to(model.device) for name, x in inputs.items()}, **without_cache)
        for number, logits in enumerate(zip(output.start_logits, output.end_logits, strict=True), first):
            in_context = torch.tensor([place == 1 for place in segments.sequence_ids(number)])
            start, stop, score, none = best_span(*(x.float().cpu() for x in logits), in_context, max_answer_tokens)
            least = min(least, none)
            if score > best["score"]:
                begin, end = segments[number].offsets[start][0], segments[number].offsets[stop][1]
                best = {"answer": context[begin:end], "start": begin, "end": end, "score": score}
    threshold = getattr(model.config, "no_answer_threshold", 0.5)  # finetune's, the best of its validation
    is_none = least > threshold * (least + best["score"])
    return {**(empty | {"score": least} if is_none else best), "no_answer_score": least}


def shared_tokens(length: int) -> int:
    """How many tokens two segments of a length share: at most a quarter."""
    return min(length // 4, STRIDE)


def best_span(start: Tensor, end: Tensor, in_context: Tensor, longest: int) -> tuple[int, int, float, float]:
    """The likeliest span of a segment: its first and last token, its probability, and that of no answer.

    ``start`` and ``end`` are (T,) logits, those of the first token for no answer; ``in_context`` is (T,) bool.
    Memory is linear in T.
    """
    allowed = in_context.clone()
    allowed[0] = True
    start, end = (x.masked_fill(~allowed, -torch.inf).softmax(0) for x in (start, end))
    last = F.pad(end * in_context, (0, longest - 1)).unfold(0, longest, 1)  # (T, longest): ends after each start
    scores = (start * in_context)[:, None] * last
    first, length = divmod(int(scores.argmax()), longest)
    return first, first + length, float(scores[first, length]), float(start[0] * end[0])


def _loaded(model: Any, tokenizer: Any, auto: Any) -> tuple[PreTrainedModel, Any]:
    """Return a model in eval mode and its tokenizer; one that is loaded here goes to the GPU where there is one."""
    place = model if isinstance(model, str | Path) else model.name_or_path
    if isinstance(model, str | Path):
        if Path(model).is_file():
            raise ValueError(
                f"{model} is a file: poolingformer convert to-huggingface makes a folder of a fairseq checkpoint; give "
                "that"
            )
        model = auto.from_pretrained(model).to("cuda" if torch.cuda.is_available() else "cpu")
    return model.eval(), AutoTokenizer.from_pretrained(place) if tokenizer is None else tokenizer
