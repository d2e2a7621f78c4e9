"""This package's own folders for transformers: BART and RoBERTa with both levels, nothing left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any

from fairseq_poolingformer.levels import global_bucket
from fairseq_poolingformer.settings import DEFAULTS, LevelSettings, TwoLevels
from fairseq_poolingformer.weights import bart, roberta
from fairseq_poolingformer.weights.family import ConversionError, Family, Settings

LEVELS = tuple(field.name for field in fields(LevelSettings))
DECODER_LENGTH = "max_decoder_position_embeddings"
EPSILON, NO_ABSOLUTE = "layer_norm_eps", "no_token_positional_embeddings"
TABLES = ("relative_positions.weight", "global_relative_positions.weight", "global_relative_positions.tokens_per_row")


def own_parameters(settings: Settings, layer: int) -> list[str]:
    """Return the names of the parameters of level two, and of global tokens, in one layer's attention."""
    levels = TwoLevels.of(settings)
    has_level_two = layer in levels.layers_with_level_two()
    kinds = ["pooled"] * (has_level_two and not levels.pool_share_weights)
    kinds += ["global"] * levels.separate_global_projections
    names = [f"{kind}_{letter}_proj.{part}" for kind in kinds for letter in "qkv" for part in ("weight", "bias")]
    if has_level_two and levels.pool_type.endswith("ldconv"):
        names += ["pooled_k_pool_weight", "pooled_v_pool_weight"]
    return names


def bart_names(settings: Settings) -> dict[str, str]:
    """Return Hugging Face name -> fairseq name: BART's, and those of level two and of global tokens."""
    table = bart.names(settings)
    for layer in range(settings["encoder_layers"]):
        own = own_parameters(settings, layer)
        table.update({name: name for name in (f"encoder.layers.{layer}.self_attn.{part}" for part in own)})
    return table


def roberta_names(settings: Settings) -> dict[str, str]:
    """Return Hugging Face name -> fairseq name: RoBERTa's, and those of both levels and of relative positions."""
    table, flags = roberta.names(settings), TwoLevels.of(settings)
    if settings.get(NO_ABSOLUTE):
        del table[roberta.POSITIONS]
    coarse = global_bucket(flags, settings[roberta.LENGTH]) is not None
    if flags.relative_attention != "none":
        names = TABLES if coarse else TABLES[:1]
        table.update({f"encoder.{name}": f"{roberta.ENCODER}.{name}" for name in names})
    for layer in range(settings["encoder_layers"]):
        own = own_parameters(settings, layer)
        ours, theirs = f"{roberta.ENCODER}.layers.{layer}", f"encoder.layer.{layer}.attention.self"
        table.update({f"{theirs}.{part}": f"{ours}.self_attn.{part}" for part in own})
        relative = [f"relative_projections.{name}" for name in _relative(flags.relative_attention, coarse)]
        table.update({f"{theirs}.{name}": f"{ours}.{name}" for name in relative})
    return table


def _relative(products: str, coarse: bool) -> list[str]:
    """Return the names of one layer's projections of relative positions."""
    names = ["k_proj.weight"] if "c2p" in products else []
    names += ["q_proj.weight", "q_proj.bias"] if "p2c" in products else []
    return names + [f"global_{name}" for name in names if coarse]


def _read_bart(config: Settings, before: bool = False) -> Settings:
    return {
        **bart.read_shared_config(config, before),
        **_levels(config, LEVELS),
        bart.SCALE: not config.get("scale_embedding"),
        bart.POSITIONS[0]: config["max_position_embeddings"],
        bart.POSITIONS[1]: config[DECODER_LENGTH],
    }


def _write_bart(settings: Settings, before: bool = False) -> Settings:
    levels = TwoLevels.of(settings)
    if levels.relative_attention != "none":
        raise ConversionError(
            f"the model has relative attention ({levels.relative_attention}), which this package's BART for "
            "transformers does not have; its RoBERTa has it"
        )
    values = asdict(levels)
    return {
        **bart.write_shared_config(settings, before),
        **{name: values[name] for name in LEVELS},
        "max_position_embeddings": settings[bart.POSITIONS[0]],
        DECODER_LENGTH: settings[bart.POSITIONS[1]],
        "scale_embedding": not settings.get(bart.SCALE, True),
        "forced_eos_token_id": 2,
    }


def _read_roberta(config: Settings) -> Settings:
    settings = roberta.read_config({**config, EPSILON: roberta.HUGGINGFACE_FIXED[EPSILON]})
    eps, absolute = config.get(EPSILON, roberta.DEFAULT_EPSILON), config.get("absolute_positions", True)
    return {**settings, **_levels(config, DEFAULTS), EPSILON: eps, NO_ABSOLUTE: not absolute}


def _write_roberta(settings: Settings) -> Settings:
    values = asdict(TwoLevels.of(settings))
    alone = {**settings, "relative_attention": "none", NO_ABSOLUTE: False}
    own = {EPSILON: settings.get(EPSILON, 1e-5), "absolute_positions": not settings.get(NO_ABSOLUTE)}
    return {**roberta.write_shared_config(alone), **values, **own}


def _levels(config: Settings, names: Iterable[str]) -> Settings:
    """Return those of the settings that ``config.json`` has, lists as text."""
    levels = asdict(TwoLevels.of(config))
    return {name: levels[name] for name in names if config.get(name) is not None}


def _defaults(names: Iterable[str], **others: Any) -> Settings:
    """Return the defaults of the flags that a training command names where a model has other values."""
    return {**{name: DEFAULTS[name] for name in names}, **others}


POOLINGFORMER_BART: Family = replace(
    bart.BART,
    model_type="poolingformer-bart",
    architecture="PoolingformerBartForConditionalGeneration",
    names=bart_names,
    read_config=_read_bart,
    write_config=_write_bart,
    arch_defaults=bart.BART.arch_defaults | _defaults(LEVELS),
    arch="poolingformer_bart",
    poolingformer_arch="",
    two_levels=True,
)
POOLINGFORMER_MBART: Family = replace(
    POOLINGFORMER_BART,
    model_type="poolingformer-mbart",
    architecture="PoolingformerMBartForConditionalGeneration",
    read_config=partial(_read_bart, before=True),
    write_config=partial(_write_bart, before=True),
)
POOLINGFORMER_ROBERTA: Family = replace(
    roberta.ROBERTA,
    model_type="poolingformer-roberta",
    architecture="PoolingformerRobertaForMaskedLM",
    names=roberta_names,
    read_config=_read_roberta,
    write_config=_write_roberta,
    arch_defaults=roberta.ROBERTA.arch_defaults | _defaults(DEFAULTS, layer_norm_eps=1e-5, **{NO_ABSOLUTE: False}),
    arch="poolingformer_roberta",
    poolingformer_arch="",
    two_levels=True,
)
