"""BART and those made of it: mBART, which normalizes before each sublayer, LED, and this package's with two levels."""

from __future__ import annotations

from dataclasses import replace

from fairseq_poolingformer.settings import DEFAULTS, PAPER_LAYERS
from fairseq_poolingformer.weights import ConversionError, Settings
from fairseq_poolingformer.weights.family import Family, SharedSettings
from fairseq_poolingformer.weights.loading import two_sided
from fairseq_poolingformer.weights.names import GLOBAL, NO_ABSOLUTE, POOLED, RELATIVE

EMBEDDING = "shared.weight"
MAX_POSITIONS = ("max_source_positions", "max_target_positions")
WIDTHS = ("decoder_embed_dim", "decoder_input_dim", "decoder_output_dim")  # the same as encoder_embed_dim
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_accurate", "relu": "relu", "tanh": "tanh", "linear": "linear"}
READ_ACTIVATIONS = {**ACTIVATIONS, "gelu_pytorch_tanh": "gelu_accurate"}
WRITTEN_ACTIVATIONS = {**{ours: theirs for theirs, ours in ACTIVATIONS.items()}, "gelu_fast": "gelu_new"}
BEFORE = dict.fromkeys(("encoder_normalize_before", "decoder_normalize_before"), False)  # True in mBART
FORGOTTEN_BEFORE = dict.fromkeys(("normalize_before", "add_final_layer_norm"), False)
SCALE = "no_scale_embedding"  # fairseq's; False multiplies embeddings by the square root of their width
BART_SETTINGS = SharedSettings(
    theirs="Hugging Face's BART and LED have",
    ours="fairseq's BART",
    sizes={
        "vocab_size": "vocab_size",
        "d_model": "encoder_embed_dim",
        **{f"{side}_layers": f"{side}_layers" for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": f"{side}_ffn_embed_dim" for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": f"{side}_attention_heads" for side in ("encoder", "decoder")},
    },
    rates={
        "dropout": ("dropout", 0.1),
        **{
            key: (key, 0.0)
            for key in ("attention_dropout", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop")
        },
    },
    lengths=dict.fromkeys(MAX_POSITIONS, ("max_position_embeddings", 0, 1024)),
    fixed={
        "encoder_learned_pos": True,
        "decoder_learned_pos": True,
        "layernorm_embedding": True,
        NO_ABSOLUTE: False,
        "share_all_embeddings": True,
        "share_decoder_input_output_embed": True,
        "no_cross_attention": False,
        "cross_self_attention": False,
        "adaptive_input": False,
        **BEFORE,
    },
    their_fixed={"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
    forgotten={
        "static_position_embeddings": False,
        "normalize_embedding": True,
        "extra_pos_embeddings": 2,
        "add_bias_logits": False,
        **FORGOTTEN_BEFORE,
    },
    written={"decoder_start_token_id": 2, "is_encoder_decoder": True, "tie_word_embeddings": True},
    refusals={
        GLOBAL: "BART has no separate global projections; convert to LED with --model-type led",
        RELATIVE: "the model has relative attention ({}), which this package's BART for transformers does not have; "
        "its RoBERTa has it",
    },
    absent_here=BEFORE,
)


def _arch_sizes(**sizes: int) -> dict[str, int]:
    """Return the settings of an architecture whose encoder and decoder have the same size."""
    return {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sizes.items()}


def _normalized_before(shared: SharedSettings) -> SharedSettings:
    """Return the settings of a model that normalizes before each sublayer, and once more after the last layer."""
    return replace(
        shared,
        theirs="Hugging Face's mBART has",
        fixed={**shared.fixed, **dict.fromkeys(BEFORE, True)},
        forgotten={**shared.forgotten, **dict.fromkeys(FORGOTTEN_BEFORE, True)},
    )


def _read(config: Settings, settings: Settings) -> Settings:
    activation = config.get("activation_function", "gelu")
    if activation not in READ_ACTIVATIONS:
        raise ConversionError(
            f"config.json: activation_function {activation!r} has no counterpart in fairseq; "
            f"known: {', '.join(READ_ACTIVATIONS)}"
        )
    widths = dict.fromkeys(WIDTHS, settings["encoder_embed_dim"])
    return {**widths, "activation_fn": READ_ACTIVATIONS[activation], SCALE: not config.get("scale_embedding")}


def _write(settings: Settings) -> Settings:
    width = settings["encoder_embed_dim"]
    for key in WIDTHS:
        if settings.get(key, width) != width:
            raise ConversionError(f"{key} is {settings[key]}, encoder_embed_dim {width}: Hugging Face needs one width")
    activation = settings.get("activation_fn", "gelu")
    if activation not in WRITTEN_ACTIVATIONS:
        raise ConversionError(
            f"activation_fn {activation!r} has no counterpart in Hugging Face's models; "
            f"known: {', '.join(WRITTEN_ACTIVATIONS)}"
        )
    older = {} if settings.get("activation_dropout") else {"activation_dropout": settings.get("relu_dropout", 0.0)}
    return {
        **older,  # fairseq's older name
        "activation_function": WRITTEN_ACTIVATIONS[activation],
        "scale_embedding": not settings.get(SCALE, True),
        "forced_eos_token_id": 2,
    }


def _write_bart(settings: Settings) -> Settings:
    source, target = (settings[key] for key in MAX_POSITIONS)
    if source != target:
        raise ConversionError(
            f"max_source_positions is {source} and max_target_positions {target}, but "
            "Hugging Face's BART has one number for both; convert to LED with --model-type led"
        )
    return _write(settings)


def _read_led(config: Settings, settings: Settings) -> Settings:
    return {**_read(config, settings), SCALE: True}  # transformers' LED reads no scale_embedding


def _write_led(settings: Settings) -> Settings:
    more = _write(settings)
    if more.pop("scale_embedding"):
        raise ConversionError(f"{SCALE} is False (--scale-embedding), which Hugging Face's LED cannot do")
    del more["forced_eos_token_id"]
    widest, positions = max(two_sided(settings)), settings["max_source_positions"]
    if widest > positions:
        raise ConversionError(
            f"window_size {settings['window_size']} is {widest} tokens on both sides together, but Hugging "
            f"Face's LED takes at most max_source_positions, {positions}: convert to BART, which attends to the whole "
            "sequence, with --model-type bart"
        )
    return more


BART = Family(
    model_type="bart",
    architecture="BartForConditionalGeneration",
    prefix="model.",
    shared=BART_SETTINGS,
    huggingface_tied=((EMBEDDING, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),),
    fairseq_tied=("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight"),
    position_tables={
        "encoder.embed_positions.weight": MAX_POSITIONS[0],
        "decoder.embed_positions.weight": MAX_POSITIONS[1],
    },
    arch="bart",
    poolingformer_arch="poolingformer_bart",
    arch_sizes={
        "base": _arch_sizes(layers=6, embed_dim=768, ffn_embed_dim=3072, attention_heads=12),
        "large": _arch_sizes(layers=12, embed_dim=1024, ffn_embed_dim=4096, attention_heads=16),
    },
    arch_defaults={"activation_fn": "gelu", SCALE: True, **BEFORE, **dict(BART_SETTINGS.rates.values())},
    pooled_layers={size: PAPER_LAYERS[f"bart_{size}"] for size in ("base", "large")},
    task="long_summarization",
    dictionaries=("dict.txt", "dict.source.txt", "dict.target.txt"),
    read_more=_read,
    write_more=_write_bart,
    buffers={"encoder.version": 3.0, "decoder.version": 3.0},
    zero=("final_logits_bias",),
    heads=("classification_head.", "qa_outputs."),
)
MBART = replace(
    BART, model_type="mbart", architecture="MBartForConditionalGeneration", shared=_normalized_before(BART_SETTINGS)
)
LED = replace(
    BART,
    model_type="led",
    architecture="LEDForConditionalGeneration",
    prefix="led.",
    shared=replace(
        BART_SETTINGS,
        lengths={
            MAX_POSITIONS[0]: ("max_encoder_position_embeddings", 0, 16384),
            MAX_POSITIONS[1]: ("max_decoder_position_embeddings", 0, 1024),
        },
    ),
    read_more=_read_led,
    write_more=_write_led,
    arch="led_bart",
    poolingformer_arch="",
    kinds=(GLOBAL,),
    offset_rows=False,
)
POOLINGFORMER_BART = replace(
    BART,
    model_type="poolingformer-bart",
    architecture="PoolingformerBartForConditionalGeneration",
    shared=replace(
        BART_SETTINGS,
        lengths={
            MAX_POSITIONS[0]: ("max_position_embeddings", 0, None),
            MAX_POSITIONS[1]: ("max_decoder_position_embeddings", 0, None),
        },
    ),
    write_more=_write,
    arch="poolingformer_bart",
    poolingformer_arch="",
    arch_defaults={**BART.arch_defaults, **{name: value for name, value in DEFAULTS.items() if "relative" not in name}},
    kinds=(POOLED, GLOBAL),
)
POOLINGFORMER_MBART = replace(
    POOLINGFORMER_BART,
    model_type="poolingformer-mbart",
    architecture="PoolingformerMBartForConditionalGeneration",
    shared=_normalized_before(POOLINGFORMER_BART.shared),
)
