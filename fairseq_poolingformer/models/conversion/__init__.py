"""Hugging Face weights and configurations to fairseq's and back, with torch and safetensors alone.

A family of models is one :class:`Family` value in a file of its own, listed in ``FAMILIES``. Folders are read and
written by :mod:`.files`, tokenizers are :mod:`.gpt2_bpe`, the command line is :mod:`fairseq_poolingformer.cli.convert`.
"""

from __future__ import annotations

from fairseq_poolingformer.models.conversion.bart import BART
from fairseq_poolingformer.models.conversion.family import (
    ConversionError,
    Converted,
    Family,
    Settings,
    State,
    state_to_fairseq,
    state_to_huggingface,
)
from fairseq_poolingformer.models.conversion.led import LED

__all__ = [
    "FAMILIES",
    "ConversionError",
    "Converted",
    "Family",
    "to_fairseq",
    "to_huggingface",
]

FAMILIES = {family.model_type: family for family in (BART, LED)}


def to_fairseq(config: Settings, state: State, *, arch: str | None = None, drop_heads: bool = False) -> Converted:
    """Convert a Hugging Face model to fairseq's settings and parameters.

    Args:
        config: the contents of its ``config.json``.
        state: its parameters by name.
        arch: fairseq architecture to name in the settings; by default the one that computes the same.
        drop_heads: leave out classification and question-answering heads, which are an error otherwise.

    Returns:
        The settings (what fairseq calls ``args``), the parameters, and notes for the user.

    Raises:
        ConversionError: fairseq cannot express the model, or a parameter is missing, unknown or of a wrong size.
    """
    family = _family(config.get("model_type"), "config.json: model_type")
    settings = family.read_config(config)
    converted, notes = state_to_fairseq(family, settings, state, drop_heads)
    del settings["vocab_size"]  # fairseq takes it from the dictionary
    arch = arch or family.default_arch(settings)
    # Fairseq's own BART came out of its denoising task; this package's models are made for long_summarization.
    task = "denoising" if arch.startswith("bart_") else "long_summarization"
    for key, convention in (("decoder_start_token_id", 2), ("forced_bos_token_id", None)):
        if config.get(key, convention) != convention:
            notes.append(
                f"config.json has {key} {config[key]}, which fairseq's checkpoints cannot record: "
                "generation has to begin with that token"
            )
    return Converted({"arch": arch, "task": task, **settings}, converted, notes)


def to_huggingface(
    settings: Settings,
    state: State,
    *,
    model_type: str | None = None,
    drop_heads: bool = False,
    drop_pooled: bool = False,
) -> Converted:
    """Convert a fairseq model to Hugging Face's configuration and parameters.

    Args:
        settings: the settings of the checkpoint (``args``, or ``cfg["model"]``).
        state: its parameters by name.
        model_type: "bart" or "led"; by default BART for fairseq's own ``bart`` models, LED for the others.
        drop_heads: leave out classification heads, which are an error otherwise.
        drop_pooled: leave out the second attention level, which is an error otherwise.

    Returns:
        The contents of ``config.json``, the parameters, and notes for the user.

    Raises:
        ConversionError: Hugging Face cannot express the model, or a parameter is missing, unknown or of a wrong size.
    """
    if "arch" not in settings:
        raise ConversionError("the checkpoint's settings name no architecture (arch)")
    full_attention = settings["arch"].startswith("bart_")
    family = _family(model_type or ("bart" if full_attention else "led"), "--model-type")
    missing = sorted(set(_NEEDED) - set(settings))
    if missing:
        raise ConversionError(f"the checkpoint's settings lack {', '.join(missing)}")
    notes = [] if full_attention else _attention_notes(family, settings, drop_pooled)
    embedding = next((state[name] for name in family.fairseq_tied if name in state), None)
    if embedding is None:
        raise ConversionError(f"the checkpoint has no token embedding ({family.fairseq_tied[0]})")
    settings = {**settings, "vocab_size": embedding.size(0)}
    config = {"model_type": family.model_type, "architectures": [family.architecture]}
    config.update(family.write_config(settings), torch_dtype=str(embedding.dtype).removeprefix("torch."))
    converted, more = state_to_huggingface(family, settings, state, drop_heads, drop_pooled)
    return Converted(config, converted, notes + more)


_NEEDED = (
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_ffn_embed_dim",
    "encoder_attention_heads",
    "decoder_layers",
    "decoder_ffn_embed_dim",
    "decoder_attention_heads",
    "max_source_positions",
    "max_target_positions",
)


def _family(model_type: str | None, where: str) -> Family:
    if model_type not in FAMILIES:
        raise ConversionError(f"{where} is {model_type!r}; can convert: {', '.join(FAMILIES)}")
    return FAMILIES[model_type]


def _attention_notes(family: Family, settings: Settings, drop_pooled: bool) -> list[str]:
    """Return what Hugging Face's configuration cannot say about this package's attention."""
    pooled_layers = settings.get("pooled_layers", "none")
    if pooled_layers not in ("", "none") and not drop_pooled:
        raise ConversionError(
            f"the model has a second attention level (pooled_layers {pooled_layers}), which no Hugging Face model "
            "has; leave it out with --drop-pooled, and the converted model computes without it"
        )
    if family.model_type == "bart":
        return ["Hugging Face's BART attends to the whole sequence: window_size is not kept"]
    count = settings.get("global_tokens", 0)
    return [
        f"global_tokens is {count}, which config.json cannot say: with Hugging Face, pass a global_attention_mask "
        "that is 1 on as many first tokens and 0 on the others"
    ]
