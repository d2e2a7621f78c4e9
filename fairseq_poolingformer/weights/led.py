"""LED: BART with Longformer's encoder attention, separate global projections, and position tables of its own."""

from __future__ import annotations

import re
from dataclasses import replace

from fairseq_poolingformer.weights import bart
from fairseq_poolingformer.weights.family import ConversionError, Settings, State, listed

# fairseq's part of the encoder's self_attn -> Hugging Face's
PROJECTIONS = {
    "q_proj": "longformer_self_attn.query",
    "k_proj": "longformer_self_attn.key",
    "v_proj": "longformer_self_attn.value",
    "out_proj": "output",
}
GLOBAL_PROJECTIONS = {
    "global_q_proj": "longformer_self_attn.query_global",
    "global_k_proj": "longformer_self_attn.key_global",
    "global_v_proj": "longformer_self_attn.value_global",
}
_ENCODER_ATTENTION = re.compile(r"encoder\.layers\.\d+\.self_attn\.")
_PROJECTION = re.compile(r"\.(query|key|value)\.(weight|bias)$")


def names(settings: Settings) -> dict[str, str]:
    """Return Hugging Face name -> fairseq name for every parameter; a tied embedding appears once."""
    table = {hf: fs for hf, fs in bart.names(settings).items() if not _ENCODER_ATTENTION.match(hf)}
    separate = settings.get("separate_global_projections")
    parts = {**PROJECTIONS, **(GLOBAL_PROJECTIONS if separate else {})}
    for layer in range(settings["encoder_layers"]):
        attention = f"encoder.layers.{layer}.self_attn"
        for fairseq, huggingface in parts.items():
            for parameter in ("weight", "bias"):
                table[f"{attention}.{huggingface}.{parameter}"] = f"{attention}.{fairseq}.{parameter}"
    return table


def one_sided(attention_window: int | list[int], layers: int) -> list[int]:
    """Return each layer's window to one side from Hugging Face's two-sided ``attention_window``."""
    windows = [attention_window] * layers if isinstance(attention_window, int) else attention_window
    if len(windows) != layers or any(window % 2 or window < 2 for window in windows):
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
    sides = [int(side) for side in str(window_size).split(",")]  # one, or one for each layer
    if min(sides) < 2:  # Hugging Face's code fails with less
        raise ConversionError(f"window_size {window_size}: Hugging Face needs at least 2 tokens on each side")
    windows = [2 * side for side in (sides * settings["encoder_layers"] if len(sides) == 1 else sides)]
    if odd := sorted({window for window in windows if max(windows) % window}):
        raise ConversionError(
            f"window_size {window_size}: Hugging Face pads inputs to a multiple of the largest window, {max(windows)} "
            f"tokens on both sides together, and each layer's window must divide that; {', '.join(map(str, odd))} does "
            "not. Train with windows that divide the largest"
        )
    return windows


def copy_global_projections(settings: Settings, state: State) -> list[str]:
    """Copy W_q, W_k and W_v as Hugging Face's global projections where the model has no separate ones."""
    if settings.get("separate_global_projections"):
        return []
    copies = {
        _PROJECTION.sub(r".\1_global.\2", name): state[name].clone() for name in state if _PROJECTION.search(name)
    }
    state.update(copies)
    return [f"filled in as copies of the ordinary projections, since the model has no separate ones: {listed(copies)}"]


def read_attention(config: Settings, layers: int) -> Settings:
    """Return the settings of the attention that LED and Longformer share."""
    windows = one_sided(config.get("attention_window", 512), layers)
    return {
        "window_size": ",".join(map(str, windows[:1] if len(set(windows)) == 1 else windows)),
        "pooled_layers": "none",
        "separate_global_projections": True,
        "global_tokens": 1,
    }


def _read_config(config: Settings) -> Settings:
    settings = {**bart.read_shared_config(config), bart.SCALE: True}  # transformers' LED reads no scale_embedding
    return {
        **settings,
        "max_source_positions": config.get("max_encoder_position_embeddings", 16384),
        "max_target_positions": config.get("max_decoder_position_embeddings", 1024),
        **read_attention(config, settings["encoder_layers"]),
    }


def _write_config(settings: Settings) -> Settings:
    if not settings.get(bart.SCALE, True):
        raise ConversionError(f"{bart.SCALE} is False (--scale-embedding), which Hugging Face's LED cannot do")
    positions = settings["max_source_positions"]
    windows = two_sided(settings)
    if max(windows) > positions:
        raise ConversionError(
            f"window_size {settings['window_size']} is {max(windows)} tokens on both sides together, but Hugging "
            f"Face's LED takes at most max_source_positions, {positions}: convert to BART, which attends to the whole "
            "sequence, with --model-type bart"
        )
    return {
        **bart.write_shared_config(settings),
        "attention_window": windows,
        "max_encoder_position_embeddings": positions,
        "max_decoder_position_embeddings": settings["max_target_positions"],
    }


LED = replace(
    bart.BART,
    model_type="led",
    architecture="LEDForConditionalGeneration",
    prefix="led.",
    names=names,
    position_offset=2,
    read_config=_read_config,
    write_config=_write_config,
    arch="led_bart",
    poolingformer_arch="",
    sliding_window=True,
    complete=copy_global_projections,
)
