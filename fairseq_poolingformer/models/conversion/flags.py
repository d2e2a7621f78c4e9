"""The flags with which ``fairseq-train`` builds the model that a converted checkpoint holds."""

from __future__ import annotations

import shlex

from fairseq_poolingformer.models.conversion.family import Family, Settings

# Always said, beside the positions: another attention than the weights were trained with is easily overlooked.
ATTENTION = (
    *("window_size", "pooled_layers", "separate_global_projections", "global_tokens"),
    *("relative_attention", "max_relative_positions", "global_relative_positions"),
)
TURNED_OFF = {"no_token_positional_embeddings": "--absolute-positions"}  # the flag that makes the setting False


def training_flags(family: Family, settings: Settings) -> str:
    """Return the flags for ``fairseq-train`` that build a converted model.

    Args:
        family: the Hugging Face family that it was.
        settings: what :func:`fairseq_poolingformer.models.conversion.to_fairseq` made.

    Returns:
        One line for a shell, from ``--arch`` on.
    """
    size = settings["arch"].rpartition("_")[2]
    values = {"arch": settings["arch"]}
    if settings["task"] != family.pretraining_task:  # which a converted model has behind it
        values["task"] = settings["task"]
    values.update(family.size_flags(settings, size))
    values.update({key: settings[key] for key, value in family.arch_defaults.items() if settings[key] != value})
    values.update({key: settings[key] for key in (*family.position_tables.values(), *ATTENTION) if key in settings})
    words = []
    for key, value in values.items():
        if value is False:
            words += [TURNED_OFF[key]] if key in TURNED_OFF else []
            continue
        words.append("--" + key.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return shlex.join(words)
