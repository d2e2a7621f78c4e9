"""Make short, one-level weights fit longer, two-level models, under this project's own names.

fairseq's checkpoints begin here, and so do :meth:`from_short` and the conversion of LED and Longformer: one function
extends positions, one copies projections, one halves windows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.settings import per_layer
from fairseq_poolingformer.weights import ConversionError, Settings, State

logger = logging.getLogger(__name__)

HOW = {"repeat": "by repeating them", "interpolate": "by interpolating them", "random": "by random ones"}  # in the log
OFFSET = 2  # rows of a table of positions before position 0: padding_idx + 1

COPIED = {  # parameters that start as copies: Longformer §4; coarse positions beside DeBERTa's; a tied head
    "self_attn.global_q_proj": "self_attn.q_proj",
    "self_attn.global_k_proj": "self_attn.k_proj",
    "self_attn.global_v_proj": "self_attn.v_proj",
    "relative_projections.global_k_proj": "relative_projections.k_proj",
    "relative_projections.global_q_proj": "relative_projections.q_proj",
    "encoder.lm_head.weight": "encoder.sentence_encoder.embed_tokens.weight",
}
POOLED = {f"self_attn.pooled_{letter}_proj": f"self_attn.{letter}_proj" for letter in "qkv"}
ENCODER_POSITIONS = "encoder.embed_positions.weight"  # absolute ones of the encoder: BART's, sentence_encoder's
TASK_HEAD = re.compile(r"[^.]+_head\.")  # begins the names of a task's head, which is dropped where the model has none
RELATIVE = ("relative_positions.", ".relative_projections.")
COARSE = (".global_relative_positions.", ".relative_projections.global_")  # those of pairs with a global token


def is_new(name: str) -> bool:
    """Whether a parameter keeps the model's own random initialization where a pretrained checkpoint lacks it."""
    return TASK_HEAD.match(name) is not None or any(part in name for part in ("self_attn.pooled_", *RELATIVE))


def extend_positions(table: Tensor, num_rows: int, offset: int, init: str = "repeat") -> Tensor:
    """Make learned positions for a longer input, or cut them for a shorter one."""
    positions, wanted = table[offset:], num_rows - offset
    if init == "interpolate" and wanted > len(positions):
        curves = positions.t().double()[None]  # in float32 the last row would not be the given one
        longer = F.interpolate(curves, wanted, mode="linear", align_corners=True)[0].t().to(table.dtype)
    else:
        longer = positions.repeat(-(-wanted // len(positions)), 1)  # copies one after another (Longformer §5)
    return torch.cat([table[:offset], longer])[:num_rows].clone()


def resize_relative_positions(table: Tensor, tokens_per_row: int, num_rows: int, new_tokens_per_row: int = 1) -> Tensor:
    """Resize a table of relative positions around the middle; farther rows copy the outermost, as DeBERTa clamps."""
    k = table.size(0) // 2
    # the distance in the middle of each new row, and the old row that has it
    middle = (torch.arange(num_rows) - num_rows // 2) * new_tokens_per_row + (new_tokens_per_row - 1) // 2
    return table[(middle // tokens_per_row).clamp(-k, k - 1) + k].clone()


def with_unused_rows(table: Tensor) -> Tensor:
    """Put the rows before position 0, which no token uses, before a table that lacks them, (n, C), as LED's do."""
    return torch.cat([table.new_zeros(OFFSET, table.size(1)), table])


def copied(names: Iterable[str], state: State, sources: Mapping[str, str]) -> State:
    """Return copies for the parameters that a state dict lacks, of those that they start from."""
    copies = {}
    for name in names:
        source = next((name.replace(new, old) for new, old in sources.items() if new in name), None)
        if name not in state and source in state:
            copies[name] = state[source].clone()
    return copies


def one_sided(attention_window: int | list[int], layers: int) -> list[int]:
    """Return each layer's window to one side from Hugging Face's two-sided ``attention_window``."""
    windows = attention_window if isinstance(attention_window, list | tuple) else [attention_window] * layers
    if len(windows) != layers or any(type(window) is not int or window % 2 or window < 2 for window in windows):
        raise ConversionError(
            f"config.json: attention_window is {attention_window!r}; it must be one positive even number, "
            f"or one for each of the {layers} encoder layers"
        )
    return [window // 2 for window in windows]


def two_sided(settings: Settings) -> list[int]:
    """Return Hugging Face's ``attention_window`` of each layer; this undoes :func:`one_sided`."""
    window_size = settings.get("window_size")
    if window_size is None:
        raise ConversionError(
            "the checkpoint's settings have no window_size, so the model has full attention: "
            "convert it with --model-type bart, roberta or xlm-roberta"
        )
    if "all" in str(window_size):
        raise ConversionError(
            f"window_size is {window_size}, full attention, but this Hugging Face model needs a window: "
            "convert with --model-type bart, roberta or xlm-roberta"
        )
    layers = settings["encoder_layers"]
    sides = per_layer("window_size", window_size, layers)
    if min(sides) < 2:  # Hugging Face's code fails with less
        raise ConversionError(f"window_size {window_size}: Hugging Face needs at least 2 tokens on each side")
    windows = [2 * side for side in sides]
    if odd := sorted({window for window in windows if max(windows) % window}):
        raise ConversionError(
            f"window_size {window_size}: Hugging Face pads inputs to a multiple of the largest window, {max(windows)} "
            f"tokens on both sides together, and each layer's window must divide that; {', '.join(map(str, odd))} does "
            "not. Train with windows that divide the largest"
        )
    return windows


def adapt_state_dict(target: State, state: State, offset: int, **start: str) -> None:
    """Make a pretrained state dict fit a model, in place: split ``in_proj`` of before 2019, then :func:`fit`."""
    _check_embeddings(target, state)
    split_projections(state)
    fit(target, state, offset, **start)
    if missing := [name for name in target if name not in state]:
        logger.warning("missing in the checkpoint: %s", ", ".join(missing))
    if unexpected := [name for name in state if name not in target]:
        logger.warning("in the checkpoint but not in the model: %s", ", ".join(unexpected))


def fit(
    target: State,
    state: State,
    offset: int = OFFSET,
    pooled_init: str = "random",
    position_init: str = "repeat",
    new: Collection[str] = (),
) -> None:
    """Make short, one-level weights fit a model, in place, as far as that can be done; the log says what was done.

    - Position tables of another length are extended or cut.
    - Missing global projections become copies of the ordinary ones.
    - Missing parameters of level two keep the model's random values: projections N(0, 0.02²) as in BERT, so that Z
      starts as a small average beside Y, and W_p N(0, 0.02²), close to a mean. So do missing heads of the task and
      missing relative positions.
    - Relative positions are resized (:func:`resize_relative_positions`), and missing coarse ones are made from the fine
      ones. Coarse positions that the model lacks are dropped, and so are absolute ones if it has only relative ones.
    - Global projections that the model lacks are dropped, as Longformer's table 10 does.
    """
    for name in [n for n in state if n.endswith("embed_positions.weight") and n in target]:
        have, want = state[name].size(0), target[name].size(0)
        if have != want:
            if position_init == "random" and want > have:  # as the model was initialized
                state[name] = torch.cat([state[name], target[name][have:].to(state[name])])
            else:
                state[name] = extend_positions(state[name], want, offset, position_init)
            how = HOW[position_init] if want > have else "to the first ones"
            logger.info("%s: %d positions -> %d, %s", name, have - offset, want - offset, how)
    _fit_relative_positions(target, state)
    lacking = [name for name in state if name not in target]
    if any(name.endswith(".relative_positions.weight") for name in target):
        reason = "the model has relative positions (--absolute-positions keeps both)"
        _leave_out(state, [name for name in lacking if name.endswith(ENCODER_POSITIONS)], reason)
    _leave_out(state, filter(TASK_HEAD.match, lacking), "this task has no such head")
    reason = "the model has no separate global projections"
    _leave_out(state, (n for n in lacking if ".self_attn.global_" in n), reason, logging.WARNING)
    copies = copied(target, state, COPIED if pooled_init == "random" else COPIED | POOLED)
    silent = []  # values of zero make Z = 0, so that the first outputs are level one's
    if pooled_init == "copy-zero-values":
        silent = [name for name in copies if "self_attn.pooled_v_proj" in name]
        state.update({name: torch.zeros_like(target[name]) for name in silent})
        copies = {name: x for name, x in copies.items() if name not in silent}
    state.update(copies)
    fresh = [name for name in target if name not in state and (is_new(name) or any(part in name for part in new))]
    state.update({name: target[name].clone() for name in fresh})
    if copies:
        logger.info("copied from the ordinary projections: %s", ", ".join(copies))
    if silent:
        logger.info("zero, so that level two begins silent: %s", ", ".join(silent))
    if fresh:
        logger.info("newly initialized: %s", ", ".join(fresh))


def _leave_out(state: State, names: Iterable[str], reason: str, level: int = logging.INFO) -> None:
    names = list(names)
    for name in names:
        del state[name]
    if names:
        logger.log(level, "left out, since %s: %s", reason, ", ".join(names))


def _fit_relative_positions(target: State, state: State) -> None:
    """Resize tables of relative positions to the model's sizes, in place."""
    _check_products(target, state)
    unused = [n for n in state if n not in target and any(part in n for part in COARSE)]
    _leave_out(state, unused, "the model has no coarse relative positions")
    for name in [n for n in target if n.endswith(".relative_positions.weight")]:
        if name not in state:
            continue
        coarse = name.replace(".relative_positions.weight", ".global_relative_positions.weight")
        bucket = coarse.replace(".weight", ".tokens_per_row")
        if coarse in target:  # from the fine rows, not yet resized, where the checkpoint has no coarse ones
            source = coarse if coarse in state else name
            old, new = int(state.get(bucket, 1)), int(target[bucket])
            _resize(state, coarse, state[source], old, target[coarse].size(0), new)
            state[bucket] = target[bucket].clone()
        _resize(state, name, state[name], 1, target[name].size(0), 1)


def _check_products(target: State, state: State) -> None:
    """Refuse a state dict that has parameters of a product (c2p, p2c) that the model does not compute."""
    have, want = _products(state), _products(target)
    if set(have) <= set(want):
        return
    flags = f"--relative-attention {','.join(have)}"
    if not any(name.endswith(ENCODER_POSITIONS) for name in state):
        flags += " --no-absolute-positions"
    raise ValueError(
        f"the checkpoint was trained with {flags}, the model is built with --relative-attention "
        f"{','.join(want) or 'none'}, which would leave out a part of the scores: give the checkpoint's flags, or the "
        "--arch that it was trained with (poolingformer_deberta_* has c2p,p2c)"
    )


def _products(state: State) -> list[str]:
    """Return the products of ``--relative-attention`` whose parameters a state dict has."""
    projections = {"c2p": ".relative_projections.k_proj.weight", "p2c": ".relative_projections.q_proj.weight"}
    return [product for product, part in projections.items() if any(name.endswith(part) for name in state)]


def _resize(state: State, name: str, table: Tensor, old: int, num_rows: int, new: int) -> None:
    if name not in state or (table.size(0), old) != (num_rows, new):
        logger.info("%s: %d rows, each of %d distances -> %d, each of %d", name, table.size(0), old, num_rows, new)
        state[name] = resize_relative_positions(table, old, num_rows, new)


def split_projections(state: State) -> None:
    """Split ``in_proj_weight``, (3C, C), and ``in_proj_bias``, (3C,), into those of q, k and v."""
    for name in [n for n in state if n.endswith((".in_proj_weight", ".in_proj_bias"))]:
        head, _, kind = name.rpartition(".in_proj_")
        for letter, part in zip("qkv", state.pop(name).chunk(3), strict=True):
            state[f"{head}.{letter}_proj.{kind}"] = part


def _check_embeddings(target: State, state: State) -> None:
    for name in [n for n in target if n.endswith("embed_tokens.weight")]:
        if name in state and target[name].shape != state[name].shape:
            raise ValueError(
                f"{name} is {tuple(state[name].shape)} in the checkpoint and {tuple(target[name].shape)} in the model. "
                "The data folder's dictionary must be the checkpoint's own: put the dict.txt of the archive beside the "
                "checkpoint, or preprocess with it. And --encoder-embed-dim must be the checkpoint's width"
            )
