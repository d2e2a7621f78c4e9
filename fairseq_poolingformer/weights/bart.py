"""BART and mBART: Hugging Face has fairseq's names, so the tables here are mostly sizes and settings.

mBART is BART with normalization before each sublayer, and once more after the last layer.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fairseq_poolingformer.settings import PAPER_LAYERS
from fairseq_poolingformer.weights.family import ConversionError, Family, Settings

EMBEDDING = "shared.weight"
ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj")
FEED_FORWARD = ("fc1", "fc2", "final_layer_norm")

# Hugging Face's setting -> fairseq's, where the value means the same.
SIZES = {
    "vocab_size": "vocab_size",
    "encoder_layers": "encoder_layers",
    "encoder_ffn_dim": "encoder_ffn_embed_dim",
    "encoder_attention_heads": "encoder_attention_heads",
    "decoder_layers": "decoder_layers",
    "decoder_ffn_dim": "decoder_ffn_embed_dim",
    "decoder_attention_heads": "decoder_attention_heads",
}
POSITIONS = ("max_source_positions", "max_target_positions")
RATES = {
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.0),
    "activation_dropout": ("activation_dropout", 0.0),
    "encoder_layerdrop": ("encoder_layerdrop", 0.0),
    "decoder_layerdrop": ("decoder_layerdrop", 0.0),
}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_accurate",
    "gelu_pytorch_tanh": "gelu_accurate",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
HUGGINGFACE_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_accurate": "gelu_new",
    "gelu_fast": "gelu_new",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}

# fairseq can vary these, Hugging Face's BART, LED and mBART cannot.
FIXED = {
    "encoder_learned_pos": True,
    "decoder_learned_pos": True,
    "layernorm_embedding": True,
    "no_token_positional_embeddings": False,
    "share_all_embeddings": True,
    "share_decoder_input_output_embed": True,
    "no_cross_attention": False,
    "cross_self_attention": False,
    "adaptive_input": False,
}
# Older config.json files have these settings; today's Hugging Face models no longer read them.
FORGOTTEN = {
    "static_position_embeddings": False,
    "normalize_embedding": True,
    "extra_pos_embeddings": 2,
    "add_bias_logits": False,
}
BEFORE = ("encoder_normalize_before", "decoder_normalize_before")  # True in mBART, False in BART and LED
FORGOTTEN_BEFORE = ("normalize_before", "add_final_layer_norm")  # the same in older config.json files
SCALE = "no_scale_embedding"  # fairseq's; False multiplies embeddings by the square root of their width
SPECIAL_IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}


def _arch_sizes(**sizes: int) -> dict[str, int]:
    """Return the settings of an architecture whose encoder and decoder have the same size."""
    return {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sizes.items()}


def names(settings: Settings) -> dict[str, str]:
    """Return Hugging Face name -> fairseq name for every parameter; the tied embedding appears once."""
    table = {EMBEDDING: "encoder.embed_tokens.weight"}
    for side in ("encoder", "decoder"):
        table[f"{side}.embed_positions.weight"] = f"{side}.embed_positions.weight"
        modules = [f"{side}.layernorm_embedding"]
        modules += [f"{side}.layer_norm"] * bool(settings.get(f"{side}_normalize_before"))
        for layer in range(settings[f"{side}_layers"]):
            attentions = ("self_attn",) if side == "encoder" else ("self_attn", "encoder_attn")
            parts = [f"{attention}.{part}" for attention in attentions for part in ATTENTION]
            parts += [f"{attention}_layer_norm" for attention in attentions]
            modules += [f"{side}.layers.{layer}.{part}" for part in (*parts, *FEED_FORWARD)]
        table.update({f"{m}.{p}": f"{m}.{p}" for m in modules for p in ("weight", "bias")})
    return table


def read_shared_config(config: Settings, before: bool = False) -> Settings:
    """Return the fairseq settings that BART, LED and mBART share.

    Args:
        config: the contents of ``config.json``.
        before: normalization comes before each sublayer.
    """
    for key, value in {**FORGOTTEN, **SPECIAL_IDS, **dict.fromkeys(FORGOTTEN_BEFORE, before)}.items():
        if config.get(key, value) != value:
            raise ConversionError(f"config.json: {key} is {config[key]!r}; fairseq's BART needs {value!r}")
    activation = config.get("activation_function", "gelu")
    if activation not in ACTIVATIONS:
        raise ConversionError(
            f"config.json: activation_function {activation!r} has no counterpart in fairseq; "
            f"known: {', '.join(ACTIVATIONS)}"
        )
    missing = sorted(key for key in (*SIZES, "d_model") if key not in config)
    if missing:
        raise ConversionError(f"config.json lacks {', '.join(missing)}")
    settings: Settings = {fairseq: config[key] for key, fairseq in SIZES.items()}
    settings.update({fairseq: float(config.get(key, value)) for key, (fairseq, value) in RATES.items()})
    width = config["d_model"]
    settings.update(encoder_embed_dim=width, decoder_embed_dim=width)
    settings.update(decoder_input_dim=width, decoder_output_dim=width)
    settings.update(FIXED, **dict.fromkeys(BEFORE, before), activation_fn=ACTIVATIONS[activation])
    return settings


def write_shared_config(settings: Settings, before: bool = False) -> Settings:
    """Return the part of config.json that BART, LED and mBART share; ``before`` as in :func:`read_shared_config`."""
    for key, value in {**FIXED, **dict.fromkeys(BEFORE, before)}.items():
        if settings.get(key, value if key in FIXED else False) != value:
            raise ConversionError(
                f"{key} is {settings.get(key)!r}; Hugging Face's {'mBART has' if before else 'BART and LED have'} only "
                f"{value!r}"
            )
    width = settings["encoder_embed_dim"]
    for key in ("decoder_embed_dim", "decoder_input_dim", "decoder_output_dim"):
        if settings.get(key, width) != width:
            raise ConversionError(f"{key} is {settings[key]}, encoder_embed_dim {width}: Hugging Face needs one width")
    activation = settings.get("activation_fn", "gelu")
    if activation not in HUGGINGFACE_ACTIVATIONS:
        raise ConversionError(
            f"activation_fn {activation!r} has no counterpart in Hugging Face's models; "
            f"known: {', '.join(HUGGINGFACE_ACTIVATIONS)}"
        )
    config: Settings = {key: settings[fairseq] for key, fairseq in SIZES.items()}
    config.update({key: settings.get(fairseq, value) for key, (fairseq, value) in RATES.items()})
    if not settings.get("activation_dropout"):
        config["activation_dropout"] = settings.get("relu_dropout", 0.0)  # fairseq's older name
    config.update(SPECIAL_IDS, d_model=width, activation_function=HUGGINGFACE_ACTIVATIONS[activation])
    config.update(decoder_start_token_id=2, is_encoder_decoder=True, tie_word_embeddings=True)
    return config


def _read_config(config: Settings, before: bool = False) -> Settings:
    positions = config.get("max_position_embeddings", 1024)
    return {
        **read_shared_config(config, before),
        SCALE: not config.get("scale_embedding"),
        "max_source_positions": positions,
        "max_target_positions": positions,
    }


def _write_config(settings: Settings, before: bool = False) -> Settings:
    source, target = settings["max_source_positions"], settings["max_target_positions"]
    if source != target:
        raise ConversionError(
            f"max_source_positions is {source} and max_target_positions {target}, but "
            "Hugging Face's BART has one number for both; convert to LED with --model-type led"
        )
    if settings.get("separate_global_projections"):
        raise ConversionError("BART has no separate global projections; convert to LED with --model-type led")
    return {
        **write_shared_config(settings, before),
        "max_position_embeddings": source,
        "scale_embedding": not settings.get(SCALE, True),
        "forced_eos_token_id": 2,
    }


BART = Family(
    model_type="bart",
    architecture="BartForConditionalGeneration",
    prefix="model.",
    names=names,
    huggingface_tied=((EMBEDDING, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),),
    fairseq_tied=(
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        "decoder.output_projection.weight",
    ),
    position_tables={
        "encoder.embed_positions.weight": POSITIONS[0],
        "decoder.embed_positions.weight": POSITIONS[1],
    },
    position_offset=0,
    needed=(*(key for key in SIZES.values() if key != "vocab_size"), "encoder_embed_dim", *POSITIONS),
    read_config=_read_config,
    write_config=_write_config,
    arch="bart",
    poolingformer_arch="poolingformer_bart",
    arch_sizes={
        "base": _arch_sizes(layers=6, embed_dim=768, ffn_embed_dim=3072, attention_heads=12),
        "large": _arch_sizes(layers=12, embed_dim=1024, ffn_embed_dim=4096, attention_heads=16),
    },
    pooled_layers={size: PAPER_LAYERS[f"bart_{size}"] for size in ("base", "large")},
    arch_defaults={"activation_fn": "gelu", SCALE: True, **dict.fromkeys(BEFORE, False), **dict(RATES.values())},
    task="long_summarization",
    dictionaries=("dict.txt", "dict.source.txt", "dict.target.txt"),
    buffers={"encoder.version": 3.0, "decoder.version": 3.0},
    zero=("final_logits_bias",),
    heads=("classification_head.", "qa_outputs."),
)
MBART = replace(
    BART,
    model_type="mbart",
    architecture="MBartForConditionalGeneration",
    read_config=partial(_read_config, before=True),
    write_config=partial(_write_config, before=True),
)
