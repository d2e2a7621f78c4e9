"""DeBERTa (the first version): RoBERTa with relative positions, other special tokens, and q, k and v in one matrix."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fairseq_poolingformer.settings import per_layer
from fairseq_poolingformer.weights import ConversionError, Settings, State, listed, roberta
from fairseq_poolingformer.weights.names import NO_ABSOLUTE, RELATIVE
from fairseq_poolingformer.weights.roberta import EMBEDDING, EPSILON, LENGTH, POSITION_IDS, POSITION_TABLE, TOKEN_TYPES

HEAD, PUBLISHED_HEAD = "cls.predictions.", "lm_predictions.lm_head."  # in transformers, in the published weights
TIED_HEAD = (f"{HEAD}decoder.weight", f"{HEAD}decoder.bias")
# Hugging Face's special tokens in the order of their rows -> fairseq's names; fairseq has the first two rows swapped
SPECIAL_TOKENS = {"[PAD]": "<pad>", "[CLS]": "<s>", "[SEP]": "</s>", "[UNK]": "<unk>", "[MASK]": "<mask>"}
SWAPPED = (0, 1)  # rows of <pad> and <s>
DEBERTA_SETTINGS = replace(
    roberta.without(roberta.ROBERTA_SETTINGS, NO_ABSOLUTE),
    ours="this package's DeBERTa",
    lengths={LENGTH: ("max_position_embeddings", 0, None)},
    their_fixed={"hidden_act": "gelu", "pad_token_id": 0, "relative_attention": True, "talking_head": False},
    forgotten={},
    written={"bos_token_id": 1, "eos_token_id": 2, "type_vocab_size": 0, "tie_word_embeddings": True, "legacy": True},
    refusals={},
    absent={"relative_attention": False},
)


def _attention(layer: int) -> str:
    return f"encoder.layer.{layer}.attention.self"


def absorb(settings: Settings, state: State) -> list[str]:
    """Make the state RoBERTa's: split projections, rename the head, add token types to positions, reorder rows."""
    notes = _absorb_head(state)
    state.pop(POSITION_IDS, None)
    if settings[NO_ABSOLUTE] and POSITION_TABLE in state:
        del state[POSITION_TABLE]
        notes.append("left out the absolute positions, since only the head of DeBERTa's own pretraining uses them")
    types = state.pop(TOKEN_TYPES, None)
    if types is not None and len(types):
        notes += _absorb_token_types(types, settings, state)
    for layer in range(settings["encoder_layers"]):
        _split_projections(_attention(layer), settings["encoder_attention_heads"], state)
    notes += roberta.fill_in_head("deberta", state)
    _swap_rows(state)
    return notes


def _absorb_head(state: State) -> list[str]:
    """Rename a published head, and drop the poolers and the other head, which the model does not use."""
    unused = (PUBLISHED_HEAD,)
    if f"{PUBLISHED_HEAD}bias" in state:
        unused = (HEAD,)
    left = [name for name in state if name.startswith(("pooler.", *unused))]
    for name in left:
        del state[name]
    for name in [name for name in state if name.startswith(PUBLISHED_HEAD)]:
        part = name.removeprefix(PUBLISHED_HEAD)
        state[f"{HEAD}transform.{part}" if part.startswith(("dense.", "LayerNorm.")) else HEAD + part] = state.pop(name)
    return [f"left out, since neither the encoder nor its head uses them: {listed(left)}"] if left else []


def _absorb_token_types(types: Tensor, settings: Settings, state: State) -> list[str]:
    """Add the embedding of type 0, (types, C)[0], to the absolute positions; a model without positions gets a table."""
    notes = []
    if settings[NO_ABSOLUTE] and bool(types[0].any()):
        settings[NO_ABSOLUTE] = False
        state[POSITION_TABLE] = types.new_zeros(settings[LENGTH], types.size(1))
        notes.append(
            "the model has token types but no absolute positions: it gets a table of positions (--absolute-positions) "
            "whose rows are all the embedding of type 0, so that it computes the same"
        )
    return notes + roberta.absorb_token_types(types, state, offset=0)


def _split_projections(attention: str, heads: int, state: State) -> None:
    """Split in_proj, (3C, C), whose rows are q, k and v head by head, and rename the biases of q and v."""
    weight = state.pop(f"{attention}.in_proj.weight", None)
    if weight is None:
        return  # the converter later names it with all other missing parameters
    if weight.dim() != 2 or weight.size(0) != 3 * weight.size(1) or weight.size(1) % heads:
        raise ConversionError(
            f"{attention}.in_proj.weight is {tuple(weight.shape)}; a model with {heads} heads needs (3C, C), C a "
            f"multiple of {heads}"
        )
    parts = weight.unflatten(0, (heads, 3, -1)).unbind(1)
    for name, part in zip(("query", "key", "value"), parts, strict=True):
        state[f"{attention}.{name}.weight"] = part.flatten(0, 1)
    state[f"{attention}.key.bias"] = weight.new_zeros(weight.size(1))
    for name, bias in (("query", "q_bias"), ("value", "v_bias")):
        if f"{attention}.{bias}" in state:
            state[f"{attention}.{name}.bias"] = state.pop(f"{attention}.{bias}")


def _swap_rows(state: State) -> None:
    """Swap ``<pad>`` and ``<s>``: rows 0 and 1 of every table with a row for each symbol."""
    for name in (EMBEDDING, f"{HEAD}bias", *TIED_HEAD):
        if name in state:
            order = torch.arange(len(state[name]))
            order[list(SWAPPED)] = order[list(reversed(SWAPPED))]
            state[name] = state[name][order]


def complete(settings: Settings, state: State) -> list[str]:
    """Undo :func:`absorb`; the state's names have no prefix."""
    heads = settings["encoder_attention_heads"]
    for layer in range(settings["encoder_layers"]):
        attention = _attention(layer)
        bias = state.pop(f"{attention}.key.bias")
        # without p2c the bias adds one number to all scores of a query, which the softmax cancels
        if "p2c" in settings["relative_attention"] and bool(bias.any()):
            raise ConversionError(
                f"layer {layer}: the bias of the keys is not zero, but Hugging Face's DeBERTa has no such bias and "
                "would compute other scores; such a model converts only if it was trained without p2c"
            )
        parts = [
            state.pop(f"{attention}.{name}.weight").unflatten(0, (heads, -1)) for name in ("query", "key", "value")
        ]
        state[f"{attention}.in_proj.weight"] = torch.stack(parts, 1).flatten(0, 2)
        state[f"{attention}.q_bias"] = state.pop(f"{attention}.query.bias")
        state[f"{attention}.v_bias"] = state.pop(f"{attention}.value.bias")
    _swap_rows(state)
    return []


def _read(config: Settings, settings: Settings) -> Settings:
    """Return fairseq's settings: every token attends to all, with k relative positions on each side."""
    if config.get("embedding_size", config.get("hidden_size")) != config.get("hidden_size"):
        raise ConversionError("config.json: embedding_size differs from hidden_size; fairseq's RoBERTa has one width")
    k = config.get("max_relative_positions") or -1
    return {
        EPSILON: config.get(EPSILON, 1e-7),
        NO_ABSOLUTE: not config.get("position_biased_input", True),
        "relative_attention": _products(config.get("pos_att_type")),
        "max_relative_positions": settings[LENGTH] if k < 1 else k,
        "global_relative_positions": 0,
        "global_tokens": 0,
        "window_size": "all",
        "pooled_layers": "none",
    }


def _products(pos_att_type: str | list[str] | None) -> str:
    """Return the value of ``--relative-attention`` for ``pos_att_type``, a list or words joined by ``|``."""
    words = pos_att_type.lower().split("|") if isinstance(pos_att_type, str) else pos_att_type or []
    words = sorted(str(word).strip() for word in words)
    if not words or set(words) - {"c2p", "p2c"} or len(set(words)) != len(words):
        raise ConversionError(f"config.json: pos_att_type is {pos_att_type!r}; it must be c2p, p2c or c2p|p2c")
    return ",".join(words)


def _write(settings: Settings) -> Settings:
    if settings.get("relative_attention", "none") == "none":
        raise ConversionError("the model has no relative attention, which DeBERTa needs: choose another --model-type")
    longest, window_size = settings[LENGTH], settings["window_size"]
    if min(per_layer("window_size", window_size, settings["encoder_layers"])) < longest - 1:
        raise ConversionError(
            f"window_size is {window_size}, but Hugging Face's DeBERTa attends to the whole sequence of up "
            f"to {longest} tokens: train with --window-size all, or with a window of at least {longest - 1}"
        )
    if settings.get("global_tokens") and settings.get("global_relative_positions"):
        raise ConversionError(
            "the model has coarse relative positions for global tokens (global_relative_positions), which Hugging "
            "Face's DeBERTa lacks: only a model trained with --global-tokens 0 converts"
        )
    return {
        EPSILON: settings.get(EPSILON, 1e-5),
        "max_relative_positions": settings["max_relative_positions"],
        "pos_att_type": settings["relative_attention"].split(","),
        "position_biased_input": not settings[NO_ABSOLUTE],
    }


def read_vocabulary(vocab: dict[str, int]) -> dict[str, int]:
    """Return token -> row with fairseq's names and rows of the special tokens, from Hugging Face's."""
    return {SPECIAL_TOKENS.get(token, token): _swapped(row) for token, row in vocab.items()}


def write_vocabulary(vocab: dict[str, int]) -> dict[str, int]:
    """Undo :func:`read_vocabulary`."""
    rows = {DEBERTA.special_tokens.get(token, token): _swapped(row) for token, row in vocab.items()}
    return dict(sorted(rows.items(), key=lambda item: item[1]))


def _swapped(row: int) -> int:
    return 1 - row if row in SWAPPED else row


DEBERTA = replace(
    roberta.ROBERTA,
    model_type="deberta",
    architecture="DebertaForMaskedLM",
    prefix="deberta.",
    shared=DEBERTA_SETTINGS,
    read_more=_read,
    write_more=_write,
    huggingface_tied=((EMBEDDING, TIED_HEAD[0]), (f"{HEAD}bias", TIED_HEAD[1])),
    arch="poolingformer_deberta",
    poolingformer_arch="poolingformer_deberta",
    arch_defaults={**roberta.ROBERTA.arch_defaults, EPSILON: 1e-5, NO_ABSOLUTE: True},
    kinds=(RELATIVE,),
    offset_rows=False,
    absorb=absorb,
    complete=complete,
    unprefixed=("cls.",),
    read_vocabulary=read_vocabulary,
    write_vocabulary=write_vocabulary,
    special_tokens={ours: token for token, ours in SPECIAL_TOKENS.items()},
)
