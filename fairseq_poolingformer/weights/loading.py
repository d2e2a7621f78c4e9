"""Load short, one-level checkpoints into longer, two-level models: extend positions, fill in new parameters, log it."""

from __future__ import annotations

import logging
import re

import torch
from torch import Tensor, nn

logger = logging.getLogger(__name__)

COPIED = {  # parameters that start as copies: Longformer §4; coarse positions beside DeBERTa's; a tied head
    "self_attn.global_q_proj": "self_attn.q_proj",
    "self_attn.global_k_proj": "self_attn.k_proj",
    "self_attn.global_v_proj": "self_attn.v_proj",
    "relative_projections.global_k_proj": "relative_projections.k_proj",
    "relative_projections.global_q_proj": "relative_projections.q_proj",
    "encoder.lm_head.weight": "encoder.sentence_encoder.embed_tokens.weight",
}
POOLED = {f"self_attn.pooled_{letter}_proj": f"self_attn.{letter}_proj" for letter in "qkv"}
POSITIONS = "encoder.embed_positions.weight"  # absolute ones of the encoder: BART's, sentence_encoder's
TASK_HEAD = re.compile(r"[^.]+_head\.")  # begins the names of a task's head, which is dropped where the model has none
RELATIVE = ("relative_positions.", ".relative_projections.")
COARSE = (".global_relative_positions.", ".relative_projections.global_")  # those of pairs with a global token


def is_new(name: str) -> bool:
    """Whether a parameter keeps the model's own random initialization where a pretrained checkpoint lacks it."""
    return TASK_HEAD.match(name) is not None or any(part in name for part in ("self_attn.pooled_", *RELATIVE))


def extend_positions(table: Tensor, num_rows: int, offset: int) -> Tensor:
    """Repeat learned positions in a loop for a longer input (Longformer §5), or cut them for a shorter one.

    Args:
        table: (offset + n, C) pretrained rows.
        num_rows: wanted rows, ``offset`` included.
        offset: leading rows that are not positions (fairseq: padding_idx + 1); they stay as they are.

    Returns:
        (num_rows, C).
    """
    positions = table[offset:]
    repeats = -(-(num_rows - offset) // positions.size(0))
    return torch.cat([table[:offset], positions.repeat(repeats, 1)])[:num_rows].clone()


def resize_relative_positions(table: Tensor, tokens_per_row: int, num_rows: int, new_tokens_per_row: int = 1) -> Tensor:
    """Resize a table of relative positions: each new row copies the old row of the distance in its middle.

    Distances beyond the given table take its outermost rows, as DeBERTa clamps them.

    Args:
        table: (2k, C); row r serves ``tokens_per_row`` distances from (r − k)·tokens_per_row on.
        tokens_per_row: number of neighbouring distances that share a row.
        num_rows: wanted rows, even.
        new_tokens_per_row: number of distances that share a new row.

    Returns:
        (num_rows, C).
    """
    k = table.size(0) // 2
    middle = (torch.arange(num_rows) - num_rows // 2) * new_tokens_per_row + (new_tokens_per_row - 1) // 2
    return table[(middle // tokens_per_row).clamp(-k, k - 1) + k].clone()


def adapt_state_dict(model: nn.Module, state: dict[str, Tensor], offset: int, pooled_init: str = "random") -> None:
    """Make a pretrained state dict fit ``model``, in place; a state dict that fits stays as it is.

    - Position tables of another length are extended or cut.
    - Missing global projections become copies of the ordinary ones.
    - Missing parameters of level two keep the model's random values: projections N(0, 0.02²) as in BERT, so that Z
      starts as a small average beside Y, and W_p N(0, 0.02²), close to a mean. So do missing heads of the task and
      missing relative positions.
    - Relative positions are resized (:func:`resize_relative_positions`), and missing coarse ones are made from the fine
      ones. Coarse positions that the model lacks are dropped, and so are absolute ones if it has only relative ones.
    - Global projections that the model lacks are dropped, as Longformer's table 10 does.
    - Query, key and value projections in one matrix, as fairseq had them until 2019, are split.

    The log says all of this. ``load_state_dict`` refuses everything else that is missing or unexpected.

    Args:
        model: the model that will load it.
        state: the state dict.
        offset: leading rows of position tables that are not positions.
        pooled_init: ``level-one`` copies level one's projections to a second level that the state dict lacks.

    Raises:
        ValueError: an embedding has another size than the model's, or the state dict has parameters of scores of
            relative positions that the model does not compute.
    """
    own = model.state_dict()
    _check_embeddings(own, state)
    split_projections(state)
    for name in [n for n in state if n.endswith("embed_positions.weight") and n in own]:
        have, want = state[name].size(0), own[name].size(0)
        if have != want:
            state[name] = extend_positions(state[name], want, offset)
            how = "by repeating them" if want > have else "to the first ones"
            logger.info("%s: %d positions -> %d, %s", name, have - offset, want - offset, how)
    _fit_relative_positions(own, state)
    _leave_out_positions(own, state)
    heads = [name for name in state if TASK_HEAD.match(name) and name not in own]
    for name in heads:
        del state[name]
    if heads:
        logger.info("left out, since this task has no such head: %s", ", ".join(heads))
    projections = [name for name in state if ".self_attn.global_" in name and name not in own]
    for name in projections:
        del state[name]
    if projections:
        logger.warning(
            "left out, since the model has no separate global projections: %s",
            ", ".join(projections),
        )
    given = set(state)
    missing = [name for name in own if name not in given]
    copied, fresh = [], []
    sources = COPIED | POOLED if pooled_init == "level-one" else COPIED
    for name in missing:
        source = next((name.replace(new, old) for new, old in sources.items() if new in name), None)
        if source in given:
            state[name] = state[source].clone()
            copied.append(name)
        elif is_new(name):
            state[name] = own[name].clone()
            fresh.append(name)
    if copied:
        logger.info("copied from the ordinary projections: %s", ", ".join(copied))
    if fresh:
        logger.info("newly initialized: %s", ", ".join(fresh))
    still_missing = [name for name in own if name not in state]
    unexpected = [name for name in state if name not in own]
    if still_missing:
        logger.warning("missing in the checkpoint: %s", ", ".join(still_missing))
    if unexpected:
        logger.warning("in the checkpoint but not in the model: %s", ", ".join(unexpected))


def _fit_relative_positions(own: dict[str, Tensor], state: dict[str, Tensor]) -> None:
    """Resize tables of relative positions to the model's sizes, in place."""
    _check_products(own, state)
    unused = [n for n in state if n not in own and any(part in n for part in COARSE)]
    for name in unused:
        del state[name]
    if unused:
        logger.info("left out, since the model has no coarse relative positions: %s", ", ".join(unused))
    for name in [n for n in own if n.endswith(".relative_positions.weight")]:
        if name not in state:
            continue
        coarse = name.replace(".relative_positions.weight", ".global_relative_positions.weight")
        bucket = coarse.replace(".weight", ".tokens_per_row")
        if coarse in own:
            source = coarse if coarse in state else name
            old, new = int(state.get(bucket, 1)), int(own[bucket])
            _resize(state, coarse, state[source], old, own[coarse].size(0), new)
            state[bucket] = own[bucket].clone()
        _resize(state, name, state[name], 1, own[name].size(0), 1)


def _check_products(own: dict[str, Tensor], state: dict[str, Tensor]) -> None:
    """Refuse a state dict that has parameters of a product (c2p, p2c) that the model does not compute."""
    have, want = _products(state), _products(own)
    if set(have) <= set(want):
        return
    flags = f"--relative-attention {','.join(have)}"
    if not any(name.endswith(POSITIONS) for name in state):
        flags += " --no-absolute-positions"
    raise ValueError(
        f"the checkpoint was trained with {flags}, the model is built with --relative-attention "
        f"{','.join(want) or 'none'}, which would leave out a part of the scores: give the checkpoint's flags, or the "
        "--arch that it was trained with (poolingformer_deberta_* has c2p,p2c)"
    )


def _products(state: dict[str, Tensor]) -> list[str]:
    """Return the products of ``--relative-attention`` whose parameters a state dict has."""
    projections = {"c2p": ".relative_projections.k_proj.weight", "p2c": ".relative_projections.q_proj.weight"}
    return [product for product, part in projections.items() if any(name.endswith(part) for name in state)]


def _resize(state: dict[str, Tensor], name: str, table: Tensor, old: int, num_rows: int, new: int) -> None:
    if name not in state or (table.size(0), old) != (num_rows, new):
        logger.info("%s: %d rows, each of %d distances -> %d, each of %d", name, table.size(0), old, num_rows, new)
        state[name] = resize_relative_positions(table, old, num_rows, new)


def _leave_out_positions(own: dict[str, Tensor], state: dict[str, Tensor]) -> None:
    """Drop absolute positions if the model has relative positions instead."""
    if not any(name.endswith(".relative_positions.weight") for name in own):
        return
    for name in [n for n in state if n.endswith(POSITIONS) and n not in own]:
        del state[name]
        logger.info("left out: %s, since the model has relative positions (--absolute-positions keeps both)", name)


def split_projections(state: dict[str, Tensor]) -> None:
    """Split ``in_proj_weight``, (3C, C), and ``in_proj_bias``, (3C,), into those of q, k and v."""
    for name in [n for n in state if n.endswith((".in_proj_weight", ".in_proj_bias"))]:
        head, _, kind = name.rpartition(".in_proj_")
        for letter, part in zip("qkv", state.pop(name).chunk(3), strict=True):
            state[f"{head}.{letter}_proj.{kind}"] = part


def _check_embeddings(own: dict[str, Tensor], state: dict[str, Tensor]) -> None:
    for name in [n for n in own if n.endswith("embed_tokens.weight")]:
        if name in state and own[name].shape != state[name].shape:
            raise ValueError(
                f"{name} is {tuple(state[name].shape)} in the checkpoint and {tuple(own[name].shape)} in the model. "
                "The data folder's dictionary must be the checkpoint's own (for BART and RoBERTa gpt2_bpe/dict.txt), "
                "and --encoder-embed-dim its width"
            )
