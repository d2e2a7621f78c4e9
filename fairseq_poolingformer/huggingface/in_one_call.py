"""Summaries of documents in one call: :func:`summarize`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

from fairseq_poolingformer.huggingface import opening
from fairseq_poolingformer.huggingface.short_models import UNLIMITED, longest_input

logger = logging.getLogger(__name__)

DEFAULTS = {"max_new_tokens": 256, "num_beams": 4}  # of models that do not have their own


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
    model, tokenizer = _loaded(model, tokenizer)
    prefix, own = of_summaries(model.config)
    set_already = {*model.generation_config.to_diff_dict(), *own, *generation}
    lacking = {name: value for name, value in DEFAULTS.items() if name not in set_already}
    if "max_length" in set_already:
        lacking.pop("max_new_tokens", None)
    longest = longest_input(model, tokenizer)
    texts, summaries = [texts] if isinstance(texts, str) else list(texts), []
    for first in range(0, len(texts), batch_size):
        batch = [prefix + text for text in texts[first : first + batch_size]]
        for number, tokens in enumerate(tokenizer(batch, verbose=False)["input_ids"], first):
            if len(tokens) > longest:
                logger.warning("text %d has %d tokens; the model reads the first %d", number, len(tokens), longest)
        cut = {"truncation": True, "max_length": longest} if longest < UNLIMITED else {}
        inputs = tokenizer(batch, padding=True, return_token_type_ids=False, return_tensors="pt", **cut)
        written = model.generate(**inputs.to(model.device), **{**lacking, **own, **generation})
        summaries += tokenizer.batch_decode(written, skip_special_tokens=True)
    return summaries


def of_summaries(config: Any) -> tuple[str, dict[str, Any]]:
    """Prefix that a configuration puts before each text (T5's "summarize: "), and its arguments of ``generate``."""
    own = dict((getattr(config, "task_specific_params", None) or {}).get("summarization", {}))
    return own.pop("prefix", getattr(config, "prefix", None)) or "", own


def _loaded(model: Any, tokenizer: Any) -> tuple[PreTrainedModel, Any]:
    """Return a model in eval mode and its tokenizer; one that is loaded here goes to the GPU where there is one."""
    place = model if isinstance(model, str | Path) else model.name_or_path
    if isinstance(model, str | Path):
        if Path(model).is_file():
            raise ValueError(
                f"{model} is a file: poolingformer convert to-huggingface makes a folder of a fairseq checkpoint; give "
                "that"
            )
        model = opening.load(AutoModelForSeq2SeqLM, str(model)).to("cuda" if torch.cuda.is_available() else "cpu")
    return model.eval(), AutoTokenizer.from_pretrained(place) if tokenizer is None else tokenizer
