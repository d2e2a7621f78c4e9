"""DeBERTa (the first version): RoBERTa with relative positions, other special tokens, and q, k and v in one matrix."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fairseq_poolingformer.weights import roberta
from fairseq_poolingformer.weights.family import ConversionError, Settings, State, listed

RELATIVE_POSITIONS = "encoder.rel_embeddings.weight"
POOLER = "pooler."
# fairseq's part of the head -> Hugging Face's: first the names in transformers, then those in the published weights
HEAD = {
    "lm_head.dense": "cls.predictions.transform.dense",
    "lm_head.layer_norm": "cls.predictions.transform.LayerNorm",
    "lm_head": "cls.predictions",
}
PUBLISHED_HEAD = {
    "lm_head.dense": "lm_predictions.lm_head.dense",
    "lm_head.layer_norm": "lm_predictions.lm_head.LayerNorm",
    "lm_head": "lm_predictions.lm_head",
}
TIED_HEAD = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
# Hugging Face's special tokens in the order of their rows -> fairseq's names; fairseq has the first two rows swapped
SPECIAL_TOKENS = {"[PAD]": "<pad>", "[CLS]": "<s>", "[SEP]": "</s>", "[UNK]": "<unk>", "[MASK]": "<mask>"}
SWAPPED = (0, 1)  # rows of <pad> and <s>
HUGGINGFACE_FIXED = {
    "hidden_act": "gelu",
    "pad_token_id": 0,
    "relative_attention": True,
    "talking_head": False,
}
DEFAULT_EPSILON = 1e-7  # layer_norm_eps where config.json has none


def names(settings: Settings) -> dict[str, str]:
    """Return Hugging Face name (as :func:`absorb` leaves it) -> fairseq name."""
    table = roberta.names_with(settings, roberta.LAYER)
    if settings["no_token_positional_embeddings"]:
        del table[roberta.POSITIONS]
    table[RELATIVE_POSITIONS] = f"{roberta.ENCODER}.relative_positions.weight"
    for layer in range(settings["encoder_layers"]):
        ours = f"{roberta.ENCODER}.layers.{layer}.relative_projections"
        theirs = _attention(layer)
        if "c2p" in settings["relative_attention"]:
            table[f"{theirs}.pos_proj.weight"] = f"{ours}.k_proj.weight"
        if "p2c" in settings["relative_attention"]:
            table |= {f"{theirs}.pos_q_proj.{part}": f"{ours}.q_proj.{part}" for part in ("weight", "bias")}
    return table


def _attention(layer: int) -> str:
    return f"encoder.layer.{layer}.attention.self"


def absorb(settings: Settings, state: State) -> list[str]:
    """Make the state RoBERTa's: split projections, rename the head, add token types to positions, reorder rows."""
    notes = _absorb_head(state)
    state.pop(roberta.POSITION_IDS, None)
    if settings["no_token_positional_embeddings"] and roberta.POSITIONS in state:
        del state[roberta.POSITIONS]
        notes.append("left out the absolute positions, since only the head of DeBERTa's own pretraining uses them")
    types = state.pop(roberta.TOKEN_TYPES, None)
    if types is not None and len(types):
        notes += _absorb_token_types(types, settings, state)
    for layer in range(settings["encoder_layers"]):
        _split_projections(_attention(layer), settings["encoder_attention_heads"], state)
    notes += roberta.fill_in_head(state)
    _swap_rows(state)
    return notes


def _absorb_head(state: State) -> list[str]:
    """Rename the head, and drop the poolers and the other head, which the model does not use."""
    notes = []
    published = f"{PUBLISHED_HEAD['lm_head']}.bias" in state
    used, unused = (PUBLISHED_HEAD, HEAD) if published else (HEAD, PUBLISHED_HEAD)
    for ours, theirs in used.items():
        for part in ("weight", "bias"):
            if f"{theirs}.{part}" in state:
                state[f"{ours}.{part}"] = state.pop(f"{theirs}.{part}")
    for theirs, ours in zip(TIED_HEAD, ("lm_head.decoder.weight", "lm_head.decoder.bias"), strict=True):
        if theirs in state and not published:
            state[ours] = state.pop(theirs)
    left = [n for n in state if n.startswith((POOLER, unused["lm_head"] + ".", *(TIED_HEAD if published else ())))]
    for name in left:
        del state[name]
    if left:
        notes.append(f"left out, since neither the encoder nor its head uses them: {listed(left)}")
    return notes


def _absorb_token_types(types: Tensor, settings: Settings, state: State) -> list[str]:
    """Add the embedding of type 0, (types, C)[0], to the absolute positions; a model without positions gets a table."""
    notes = []
    if settings["no_token_positional_embeddings"] and bool(types[0].any()):
        settings["no_token_positional_embeddings"] = False
        state[roberta.POSITIONS] = types.new_zeros(settings[roberta.LENGTH], types.size(1))
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
    for name in (roberta.EMBEDDING, "lm_head.bias", "lm_head.decoder.weight", "lm_head.decoder.bias"):
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
    for ours, theirs in HEAD.items():
        for part in ("weight", "bias"):
            if f"{ours}.{part}" in state:
                state[f"{theirs}.{part}"] = state.pop(f"{ours}.{part}")
    return []


def read_config(config: Settings) -> Settings:
    """Return fairseq's settings: every token attends to all, with k relative positions on each side."""
    config = {"layer_norm_eps": DEFAULT_EPSILON, "relative_attention": False, "pad_token_id": 0, **config}
    for key, value in HUGGINGFACE_FIXED.items():
        if config.get(key, value) != value:
            raise ConversionError(f"config.json: {key} is {config[key]!r}; this package's DeBERTa needs {value!r}")
    if config.get("embedding_size", config.get("hidden_size")) != config.get("hidden_size"):
        raise ConversionError("config.json: embedding_size differs from hidden_size; fairseq's RoBERTa has one width")
    settings = roberta.read_sizes(config)
    settings.update(roberta.FIXED, layer_norm_eps=config["layer_norm_eps"])
    longest = config["max_position_embeddings"]
    k = config.get("max_relative_positions", -1)
    products = _products(config.get("pos_att_type"))
    return {
        **settings,
        roberta.LENGTH: longest,
        "no_token_positional_embeddings": not config.get("position_biased_input", True),
        "relative_attention": products,
        "max_relative_positions": longest if k < 1 else k,
        "global_relative_positions": 0,
        "global_tokens": 0,
        "window_size": "all",
        "pooled_layers": "none",
    }


def _products(pos_att_type: str | list[str] | None) -> str:
    """Return the value of ``--relative-attention`` for ``pos_att_type``, a list or words joined by ``|``."""
    words = pos_att_type.lower().split("|") if isinstance(pos_att_type, str) else pos_att_type or []
    words = sorted(word.strip() for word in words)
    if not words or set(words) - {"c2p", "p2c"} or len(set(words)) != len(words):
        raise ConversionError(f"config.json: pos_att_type is {pos_att_type!r}; it must be c2p, p2c or c2p|p2c")
    return ",".join(words)


def _write_config(settings: Settings) -> Settings:
    if settings.get("relative_attention", "none") == "none":
        raise ConversionError("the model has no relative attention, which DeBERTa needs: choose another --model-type")
    longest, k = settings[roberta.LENGTH], settings["max_relative_positions"]
    windows = str(settings["window_size"]).split(",")
    if any(window != "all" and int(window) < longest - 1 for window in windows):
        raise ConversionError(
            f"window_size is {settings['window_size']}, but Hugging Face's DeBERTa attends to the whole sequence of up "
            f"to {longest} tokens: train with --window-size all, or with a window of at least {longest - 1}"
        )
    if settings.get("global_tokens") and settings.get("global_relative_positions"):
        raise ConversionError(
            "the model has coarse relative positions for global tokens (global_relative_positions), which Hugging "
            "Face's DeBERTa lacks: only a model trained with --global-tokens 0 converts"
        )
    shared = {**settings, "no_token_positional_embeddings": False, "relative_attention": "none"}
    return {
        **roberta.write_shared_config(shared),
        **HUGGINGFACE_FIXED,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "layer_norm_eps": settings.get("layer_norm_eps", 1e-5),
        "max_position_embeddings": longest,
        "max_relative_positions": k,
        "pos_att_type": settings["relative_attention"].split(","),
        "position_biased_input": not settings["no_token_positional_embeddings"],
        "type_vocab_size": 0,
        "legacy": True,
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
    names=names,
    position_offset=roberta.OFFSET,
    read_config=read_config,
    write_config=_write_config,
    arch="poolingformer_deberta",
    poolingformer_arch="poolingformer_deberta",
    arch_defaults={**roberta.ROBERTA.arch_defaults, "layer_norm_eps": 1e-5, "no_token_positional_embeddings": True},
    absorb=absorb,
    complete=complete,
    unprefixed=("cls.",),
    read_vocabulary=read_vocabulary,
    write_vocabulary=write_vocabulary,
    special_tokens={ours: token for token, ours in SPECIAL_TOKENS.items()},
)
