"""This package's own folders for transformers: BART and RoBERTa with both levels, nothing left out."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict, fields, replace

from fairseq_poolingformer.models.conversion import bart, roberta
from fairseq_poolingformer.models.conversion.family import ConversionError, Family, Settings
from fairseq_poolingformer.modules.attention_flags import AttentionFlags, layer_numbers

RELATIVE = ("relative_attention", "max_relative_positions", "global_relative_positions")
LEVELS = tuple(field.name for field in fields(AttentionFlags) if field.name not in RELATIVE)
DECODER_LENGTH = "max_decoder_position_embeddings"


def attention(settings: Settings) -> AttentionFlags:
    """Return the flags of the two levels in a checkpoint's settings."""
    return AttentionFlags.of(Namespace(**settings))


def level_two(settings: Settings, layer: int) -> list[str]:
    """Return the names of level two's parameters in one layer's attention."""
    levels = attention(settings)
    if layer not in layer_numbers(levels.pooled_layers):
        return []
    projections = [] if levels.pool_share_weights else [f"pooled_{letter}_proj" for letter in "qkv"]
    weights = [f"{projection}.{part}" for projection in projections for part in ("weight", "bias")]
    pools = ["pooled_k_pool_weight", "pooled_v_pool_weight"] if levels.pool_type.endswith("ldconv") else []
    return weights + pools


def bart_names(settings: Settings) -> dict[str, str]:
    """Return Hugging Face name -> fairseq name: BART's, and those of level two and of global tokens."""
    table = bart.names(settings)
    for layer in range(settings["encoder_layers"]):
        own = level_two(settings, layer)
        if settings.get("separate_global_projections"):
            own += [f"global_{letter}_proj.{part}" for letter in "qkv" for part in ("weight", "bias")]
        table.update({name: name for name in (f"encoder.layers.{layer}.self_attn.{part}" for part in own)})
    return table


def roberta_names(settings: Settings) -> dict[str, str]:
    """Return Hugging Face name -> fairseq name: RoBERTa's, and those of level two and of global tokens."""
    table = roberta.names(settings)
    for layer in range(settings["encoder_layers"]):
        own = level_two(settings, layer)
        if settings.get("separate_global_projections"):
            own += [f"global_{letter}_proj.{part}" for letter in "qkv" for part in ("weight", "bias")]
        ours = f"{roberta.ENCODER}.layers.{layer}.self_attn"
        table.update({f"encoder.layer.{layer}.attention.self.{part}": f"{ours}.{part}" for part in own})
    return table


def _read(shared: Callable[[Settings], Settings]) -> Callable[[Settings], Settings]:
    def read_config(config: Settings) -> Settings:
        return {**shared(config), **{name: config[name] for name in LEVELS if config.get(name) is not None}}

    return read_config


def _write(shared: Callable[[Settings], Settings]) -> Callable[[Settings], Settings]:
    def write_config(settings: Settings) -> Settings:
        levels = attention(settings)
        if levels.relative_attention != "none":
            raise ConversionError(
                f"the model has relative attention ({levels.relative_attention}), which this package's models for "
                "transformers do not have; a model with --window-size all converts with --model-type deberta"
            )
        values = asdict(levels)
        return {**shared(settings), **{name: values[name] for name in LEVELS}}

    return write_config


def _read_bart(config: Settings) -> Settings:
    return {
        **bart.read_shared_config(config),
        bart.SCALE: not config.get("scale_embedding"),
        bart.POSITIONS[0]: config["max_position_embeddings"],
        bart.POSITIONS[1]: config[DECODER_LENGTH],
    }


def _write_bart(settings: Settings) -> Settings:
    return {
        **bart.write_shared_config(settings),
        "max_position_embeddings": settings[bart.POSITIONS[0]],
        DECODER_LENGTH: settings[bart.POSITIONS[1]],
        "scale_embedding": not settings.get(bart.SCALE, True),
        "forced_eos_token_id": 2,
    }


POOLINGFORMER_BART: Family = replace(
    bart.BART,
    model_type="poolingformer-bart",
    architecture="PoolingformerBartForConditionalGeneration",
    names=bart_names,
    read_config=_read(_read_bart),
    write_config=_write(_write_bart),
    arch="poolingformer_bart",
    poolingformer_arch="",
    two_levels=True,
)
POOLINGFORMER_ROBERTA: Family = replace(
    roberta.ROBERTA,
    model_type="poolingformer-roberta",
    architecture="PoolingformerRobertaForMaskedLM",
    names=roberta_names,
    read_config=_read(roberta.read_config),
    write_config=_write(roberta.write_shared_config),
    arch="poolingformer_roberta",
    poolingformer_arch="",
    two_levels=True,
)
