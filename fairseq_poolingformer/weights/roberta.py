"""RoBERTa: an encoder and a masked-language-model head under other names, and token types that fairseq lacks."""

from __future__ import annotations

import torch

from fairseq_poolingformer.settings import PAPER_LAYERS
from fairseq_poolingformer.weights.family import ConversionError, Family, Settings, State, listed
from fairseq_poolingformer.weights.loading import split_projections

EMBEDDING = "embeddings.word_embeddings.weight"
POSITIONS = "embeddings.position_embeddings.weight"
TOKEN_TYPES = "embeddings.token_type_embeddings.weight"
POSITION_IDS = "embeddings.position_ids"  # 0, 1, 2, …: a buffer that older versions saved
ENCODER = "encoder.sentence_encoder"
# Hugging Face's part -> fairseq's
LAYER = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}
# Hugging Face's setting -> fairseq's, where the value means the same.
SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "encoder_embed_dim",
    "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads",
    "intermediate_size": "encoder_ffn_embed_dim",
}
RATES = {"hidden_dropout_prob": "dropout", "attention_probs_dropout_prob": "attention_dropout"}  # 0.1 on both sides
LENGTH = "max_positions"
OFFSET = 2  # rows of the position table before position 0: padding_idx + 1, on both sides

# fairseq can vary these, Hugging Face's RoBERTa cannot.
FIXED = {
    "activation_fn": "gelu",
    "encoder_normalize_before": False,
    "encoder_learned_pos": True,
    "layernorm_embedding": True,
    "no_token_positional_embeddings": False,
    "no_scale_embedding": True,
    "untie_weights_roberta": False,
    "adaptive_input": False,
}
# Hugging Face can vary these, fairseq cannot. Hugging Face's head always has gelu, fairseq's head what the layers have.
HUGGINGFACE_FIXED = {
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
}
HUGGINGFACE_DEFAULTS = {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}
DEFAULT_EPSILON = 1e-12  # layer_norm_eps where config.json has none


def names(settings: Settings) -> dict[str, str]:
    """Return Hugging Face name -> fairseq name for every parameter but token types; a tied one appears once."""
    return names_with(settings, LAYER)


def names_with(settings: Settings, layer_parts: dict[str, str]) -> dict[str, str]:
    """Return :func:`names` of a model whose layers have these parts."""
    table = {
        EMBEDDING: f"{ENCODER}.embed_tokens.weight",
        POSITIONS: f"{ENCODER}.embed_positions.weight",
        "lm_head.bias": "encoder.lm_head.bias",
    }
    modules = {
        "embeddings.LayerNorm": f"{ENCODER}.layernorm_embedding",
        "lm_head.dense": "encoder.lm_head.dense",
        "lm_head.layer_norm": "encoder.lm_head.layer_norm",
    }
    for layer in range(settings["encoder_layers"]):
        for huggingface, fairseq in layer_parts.items():
            modules[f"encoder.layer.{layer}.{huggingface}"] = f"{ENCODER}.layers.{layer}.{fairseq}"
    table.update({f"{hf}.{p}": f"{fs}.{p}" for hf, fs in modules.items() for p in ("weight", "bias")})
    return table


def absorb(settings: Settings, state: State) -> list[str]:
    """Remove the pooler and the token types from the state, and add a head where the model has none."""
    notes = []
    state.pop(POSITION_IDS, None)
    pooler = [name for name in state if name.startswith("pooler.")]
    for name in pooler:
        del state[name]
    if pooler:
        notes.append(f"left out the pooler, which only Hugging Face's pooler_output uses: {listed(pooler)}")
    types = state.pop(TOKEN_TYPES, None)
    if types is not None:
        notes += absorb_token_types(types, state, OFFSET)
    return notes + fill_in_head(state)


def fill_in_head(state: State) -> list[str]:
    """Add a random head for masked language modelling to a state without one."""
    if any(name.startswith("lm_head.") for name in state):
        return []
    state.update(_fresh_head(state[EMBEDDING]) if EMBEDDING in state else {})
    return [
        "the folder has no head for masked language modelling: a random one is filled in; "
        "features do not depend on it, but train it before you use predictions of <mask>"
    ]


def absorb_token_types(types: torch.Tensor, state: State, offset: int) -> list[str]:
    """Add the embedding of type 0, (types, C)[0], which every token has, to every position from row ``offset`` on."""
    notes = []
    if bool(types[0].any()) and POSITIONS in state:
        state[POSITIONS] = torch.cat([state[POSITIONS][:offset], state[POSITIONS][offset:] + types[0]])
        notes.append("added the embedding of token type 0 to the positions, since fairseq has no token types")
    if bool(types[1:].any()):
        notes.append(
            f"left out the embeddings of token types 1 to {len(types) - 1}, which only inputs with token_type_ids use: "
            "fairseq has no token types"
        )
    return notes


def _fresh_head(embedding: torch.Tensor) -> State:
    """Return a head for an embedding (V, C), initialized as BERT's."""
    rows, width = embedding.shape
    # a fixed seed, so that every conversion gives the same weights
    dense = torch.empty(width, width).normal_(std=0.02, generator=torch.Generator().manual_seed(0))
    return {
        "lm_head.dense.weight": dense.to(embedding.dtype),
        "lm_head.dense.bias": embedding.new_zeros(width),
        "lm_head.layer_norm.weight": embedding.new_ones(width),
        "lm_head.layer_norm.bias": embedding.new_zeros(width),
        "lm_head.bias": embedding.new_zeros(rows),
    }


def complete(settings: Settings, state: State) -> list[str]:
    """Add one token type, whose embedding is zero."""
    state[TOKEN_TYPES] = state[EMBEDDING].new_zeros(1, settings["encoder_embed_dim"])
    return []


def modernize(state: State) -> None:
    """Rename the parameters of fairseq's checkpoints of 2019, such as ``roberta.base``, to today's names."""
    for name in list(state):
        new = name.replace("emb_layer_norm.", "layernorm_embedding.")
        if new.startswith("decoder."):
            new = "encoder." + new.removeprefix("decoder.")
        state[new] = state.pop(name)
    split_projections(state)


def read_config(config: Settings) -> Settings:
    """Return the fairseq settings of a RoBERTa."""
    config = {"layer_norm_eps": DEFAULT_EPSILON, **config}
    for key, value in {**HUGGINGFACE_FIXED, **HUGGINGFACE_DEFAULTS}.items():
        if config.get(key, value) != value:
            raise ConversionError(f"config.json: {key} is {config[key]!r}; fairseq's RoBERTa needs {value!r}")
    return {**read_sizes(config), **FIXED, LENGTH: config["max_position_embeddings"] - OFFSET}


def read_sizes(config: Settings) -> Settings:
    """Return the fairseq settings of sizes and dropout."""
    missing = sorted(key for key in (*SIZES, "max_position_embeddings") if key not in config)
    if missing:
        raise ConversionError(f"config.json lacks {', '.join(missing)}")
    sizes: Settings = {fairseq: config[key] for key, fairseq in SIZES.items()}
    return {**sizes, **{fairseq: float(config.get(key, 0.1)) for key, fairseq in RATES.items()}}


def write_shared_config(settings: Settings) -> Settings:
    """Return the part of config.json that RoBERTa and Longformer share."""
    if settings.get("relative_attention", "none") != "none":
        raise ConversionError(
            f"the model has relative attention ({settings['relative_attention']}), which RoBERTa, XLM-R and Longformer "
            "lack; convert to DeBERTa with --model-type deberta"
        )
    for key, value in FIXED.items():
        if settings.get(key, value) != value:
            raise ConversionError(f"{key} is {settings[key]!r}; Hugging Face's RoBERTa has only {value!r}")
    return {
        **{key: settings[fairseq] for key, fairseq in SIZES.items()},
        **{key: settings.get(fairseq, 0.1) for key, fairseq in RATES.items()},
        **HUGGINGFACE_FIXED,
        "max_position_embeddings": settings[LENGTH] + OFFSET,
        "type_vocab_size": 1,
        "tie_word_embeddings": True,
    }


def _write_config(settings: Settings) -> Settings:
    if settings.get("separate_global_projections"):
        raise ConversionError(
            "RoBERTa has no separate global projections; convert to Longformer with --model-type longformer"
        )
    return write_shared_config(settings)


ROBERTA = Family(
    model_type="roberta",
    architecture="RobertaForMaskedLM",
    prefix="roberta.",
    names=names,
    huggingface_tied=((EMBEDDING, "lm_head.decoder.weight"), ("lm_head.bias", "lm_head.decoder.bias")),
    fairseq_tied=(f"{ENCODER}.embed_tokens.weight", "encoder.lm_head.weight"),
    position_tables={f"{ENCODER}.embed_positions.weight": LENGTH},
    position_offset=0,
    needed=(*(key for key in SIZES.values() if key != "vocab_size"), LENGTH),
    read_config=read_config,
    write_config=_write_config,
    arch="roberta",
    poolingformer_arch="poolingformer_roberta",
    arch_sizes={
        "base": {
            "encoder_layers": 12,
            "encoder_embed_dim": 768,
            "encoder_ffn_embed_dim": 3072,
            "encoder_attention_heads": 12,
        },
        "large": {
            "encoder_layers": 24,
            "encoder_embed_dim": 1024,
            "encoder_ffn_embed_dim": 4096,
            "encoder_attention_heads": 16,
        },
    },
    pooled_layers={size: PAPER_LAYERS[f"roberta_{size}"] for size in ("base", "large")},
    arch_defaults=dict.fromkeys(RATES.values(), 0.1),
    task="masked_lm",
    dictionaries=("dict.txt",),
    absorb=absorb,
    complete=complete,
    modernize=modernize,
    buffers={f"{ENCODER}.version": 3.0},
    heads=("classifier.", "qa_outputs."),
    unprefixed=("lm_head.",),
)
