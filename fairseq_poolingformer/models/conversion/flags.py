"""The flags with which ``fairseq-train`` builds the model that a converted checkpoint holds."""

from __future__ import annotations

import shlex

from fairseq_poolingformer.models.conversion import bart
from fairseq_poolingformer.models.conversion.family import Settings

# What every BART architecture of fairseq sets; a flag is needed where the model differs.
DEFAULTS = {
    "activation_fn": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}
# Always said: a model of other lengths or another attention than the weights were trained with is easily overlooked.
ALWAYS = (
    "max_source_positions",
    "max_target_positions",
    "window_size",
    "pooled_layers",
    "separate_global_projections",
    "global_tokens",
)


def training_flags(settings: Settings) -> str:
    """Return the flags for ``fairseq-train`` that build a converted model.

    Args:
        settings: what :func:`fairseq_poolingformer.models.conversion.to_fairseq` made.

    Returns:
        One line for a shell, from ``--arch`` on.
    """
    size = settings["arch"].rpartition("_")[2]
    values = {"arch": settings["arch"]}
    if settings["task"] != "denoising":  # pretraining, which a converted model has behind it
        values["task"] = settings["task"]
    values.update(bart.size_flags(settings, size))
    values.update({key: settings[key] for key, value in DEFAULTS.items() if settings[key] != value})
    values.update({key: settings[key] for key in ALWAYS if key in settings})
    words = []
    for key, value in values.items():
        if value is False:
            continue
        words.append("--" + key.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return shlex.join(words)
