"""The rows of embeddings of a task's special tokens, by their names, which a checkpoint has beside its weights."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from fairseq_poolingformer.text.dictionary import MARKS

logger = logging.getLogger(__name__)

NAMES = "mark_names"  # in a state dict: the special tokens of the last rows, in UTF-8, a line each
TABLES = ("embed_tokens.weight", "lm_head.weight", "lm_head.bias")  # whose last rows are those of special tokens
MASK = "<mask>"  # of a masked language model, before them


def encode_names(tokens: Sequence[str]) -> Tensor:
    """(N,) uint8: the names as they are stored under :data:`NAMES`."""
    return torch.tensor(list("\n".join(tokens).encode()), dtype=torch.uint8)


def decode_names(names: Tensor) -> tuple[str, ...]:
    """Undo :func:`encode_names`."""
    return tuple(bytes(names.to(torch.uint8).flatten().tolist()).decode(errors="replace").split("\n"))


def match_special_tokens(target: dict[str, Tensor], state: dict[str, Tensor]) -> None:
    """Give every embedding and output layer the model's special tokens in its order, in place; logs changes."""
    # sizes that the tokens do not explain stay as they are, for the model to refuse
    tokens = decode_names(target[NAMES]) if NAMES in target else ()
    tables = [name for name in state if name in target and name.endswith(TABLES)]
    words = {name: len(target[name]) - len(tokens) for name in tables}  # rows of other symbols
    trained = decode_names(state.pop(NAMES)) if NAMES in state else ()
    if NAMES in target:
        state[NAMES] = target[NAMES].clone()
    same_width = all(target[name].shape[1:] == state[name].shape[1:] for name in tables)
    explained = same_width and all(len(state[name]) == words[name] + len(trained) for name in tables)
    if not tables or not explained or trained == tokens:
        return
    for name in tables:
        rows_of = dict(zip(trained, state[name][words[name] :], strict=True))
        fresh = target[name][words[name] :].to(state[name])
        rows = [rows_of.get(token, row).unsqueeze(0) for token, row in zip(tokens, fresh, strict=True)]
        state[name] = torch.cat([state[name][: words[name]], *rows])
    for what, some, others in (
        ("newly initialized: the embeddings of %s", tokens, trained),
        ("left out, since this task has no such tokens: %s", trained, tokens),
    ):
        if different := [token for token in some if token not in others]:
            logger.info(what, ", ".join(different))


def leave_out_special_tokens(state: dict[str, Tensor]) -> list[str]:
    """Take the special tokens, which only a task's head reads, out of a state dict; a sentence that says so."""
    if NAMES not in state:
        return []
    tokens = decode_names(state.pop(NAMES))
    for name in [name for name in state if name.endswith(TABLES)]:
        state[name] = state[name][: -len(tokens)]
    return [f"left out the embeddings of the task's special tokens: {', '.join(tokens)}"]


def appended(count: int) -> tuple[str, ...] | None:
    """Return the symbols that tasks have appended to a dictionary, by their number; None for another number."""
    return {0: (), 1: (MASK,), 1 + len(MARKS): (MASK, *MARKS)}.get(count)
