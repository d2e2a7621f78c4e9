"""The rows of embeddings by their symbols: a task's special tokens, whose names a checkpoint has, and a dict.txt's."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.text.dictionary import DIGESTS, MARKS, SPECIAL_SYMBOLS, read_entries

logger = logging.getLogger(__name__)

NAMES = "mark_names"  # in a state dict: the special tokens of the last rows, in UTF-8, a line each
# whose rows are symbols, the last ones special tokens
TABLES = ("embed_tokens.weight", "output_projection.weight", "lm_head.weight", "lm_head.bias")
MASK = "<mask>"  # of a masked language model, before them
PADDING = "madeupword"  # begins the symbols that fill a released dictionary up and stand in no text


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


def rows_by_symbol(path: Path, checkpoint: Mapping[str, Any], symbols: Sequence[str]) -> None:
    """Give the embeddings of a released checkpoint the rows of ``symbols``, in place, by the dict.txt beside it.

    Raises:
        ValueError: the two dictionaries have other words.
    """
    state, file = checkpoint["model"], path.with_name("dict.txt")
    tables = [name for name in state if name.endswith(TABLES)]
    is_ours = NAMES in state or DIGESTS in (checkpoint.get("task_state") or {})  # and compares its dictionary itself
    if is_ours or not tables or not file.is_file():
        return
    released = [*SPECIAL_SYMBOLS, *(symbol for _, symbol, _, _ in read_entries(file, "#fairseq:overwrite"))]
    count = len(state[tables[0]])
    released += [MASK] * (count == len(released) + 1)
    if any(len(state[name]) != count for name in tables) or count != len(released):
        return  # another model's dictionary; the model compares the sizes
    wanted = [*symbols, *[MASK] * (MASK in released and MASK not in symbols)]  # fairseq cuts a last <mask> off
    if wanted == released:
        return
    rows = {symbol: row for row, symbol in enumerate(released)}
    missing, left_out = [s for s in wanted if s not in rows], sorted(rows.keys() - set(wanted))
    if others := missing or [symbol for symbol in left_out if not symbol.startswith(PADDING)]:
        places = ("the data folder's dictionary", str(file))
        has, lacks = places if missing else places[::-1]
        raise ValueError(
            f"{has} has {others[0]!r}, which {lacks} lacks ({len(others)} such symbols): preprocess with {file}"
        )
    order = torch.tensor([rows[symbol] for symbol in wanted])
    state.update({name: state[name][order] for name in tables})
    note = f"; left out, since the data folder lacks them: {left_out[0]} to {left_out[-1]}" if left_out else ""
    logger.info("%s: %d rows -> %d, by the symbols of %s%s", path, count, len(wanted), file, note)


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
