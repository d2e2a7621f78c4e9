"""Convert Hugging Face weights and configurations to fairseq's and back, with torch and safetensors alone.

A family of models is one :class:`Family` value in a file of its own, listed in ``FAMILIES``. :mod:`.files`
reads and writes weights and settings, :mod:`.tokenizer_files` and :mod:`.sentencepiece_model` tokenizers. The command
line is :mod:`fairseq_poolingformer.cli.convert`.
"""

from __future__ import annotations

from fairseq_poolingformer.checkpoint_reader.option_schema import ConfigurationError
from fairseq_poolingformer.checkpoint_reader.tensor_sizes import check_sizes
from fairseq_poolingformer.weights.bart import BART, MBART
from fairseq_poolingformer.weights.deberta import DEBERTA
from fairseq_poolingformer.weights.family import (
    LEVEL_TWO,
    ConversionError,
    Converted,
    Family,
    Settings,
    State,
    state_to_fairseq,
    state_to_huggingface,
)
from fairseq_poolingformer.weights.led import LED
from fairseq_poolingformer.weights.longformer import LONGFORMER
from fairseq_poolingformer.weights.marks import NAMES, leave_out_marks
from fairseq_poolingformer.weights.poolingformer import (
    POOLINGFORMER_BART,
    POOLINGFORMER_MBART,
    POOLINGFORMER_ROBERTA,
)
from fairseq_poolingformer.weights.roberta import ROBERTA
from fairseq_poolingformer.weights.xlm_roberta import XLM_ROBERTA

__all__ = [
    "FAMILIES",
    "OWN_ARCHS",
    "ConversionError",
    "Converted",
    "Family",
    "default_model_type",
    "family_of",
    "to_fairseq",
    "to_huggingface",
]

FAMILIES = {
    family.model_type: family
    for family in (
        *(BART, MBART, LED, ROBERTA, XLM_ROBERTA, LONGFORMER, DEBERTA),
        *(POOLINGFORMER_BART, POOLINGFORMER_MBART, POOLINGFORMER_ROBERTA),
    )
}
OWN_ARCHS = ("poolingformer_", "led_", "longformer_")  # the other architectures are fairseq's, with full attention


def to_fairseq(config: Settings, state: State, *, arch: str | None = None, drop_heads: bool = False) -> Converted:
    """Convert a Hugging Face model to fairseq's settings and parameters.

    Args:
        config: the contents of its ``config.json``.
        state: its parameters by name.
        arch: fairseq architecture to name in the settings; by default the one that computes the same.
        drop_heads: leave out classification and question-answering heads instead of refusing them.

    Returns:
        The settings (what fairseq calls ``args``), the parameters, and notes for the user.

    Raises:
        ConversionError: fairseq cannot express the model, or a parameter is missing, unknown or of a wrong size.
    """
    family = family_of(config.get("model_type"), "config.json: model_type")
    settings = family.read_config(config)
    try:
        check_sizes(settings, state)
    except ConfigurationError as error:
        raise ConversionError(f"config.json: {error}") from error
    converted, notes = state_to_fairseq(family, settings, state, drop_heads)
    del settings["vocab_size"]  # fairseq takes it from the dictionary
    arch = arch or family.default_arch(settings)
    if _is_bart(arch) != _is_bart(family.arch):
        raise ConversionError(f"--arch {arch} cannot hold a {family.model_type}: its architectures are {family.arch}_*")
    for key, convention in (("decoder_start_token_id", 2), ("forced_bos_token_id", None)):
        if config.get(key) not in (None, convention):
            notes.append(
                f"config.json has {key} {config[key]}, which fairseq's checkpoints cannot record: "
                "generation has to begin with that token"
            )
    settings = {"arch": arch, "task": family.task, **settings}
    return Converted({**settings, **family.level_two(settings)}, converted, notes)


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
        model_type: a key of ``FAMILIES``; by default the result of :func:`default_model_type`.
        drop_heads: leave out heads of classification and question answering instead of refusing them.
        drop_pooled: leave out the second attention level instead of refusing it in a family without it.

    Returns:
        The contents of ``config.json``, the parameters, and notes for the user.

    Raises:
        ConversionError: Hugging Face cannot express the model, or a parameter is missing, unknown or of a wrong size.
    """
    if "arch" not in settings:
        raise ConversionError("the checkpoint's settings name no architecture (arch)")
    model_type = model_type or default_model_type(settings, drop_pooled=drop_pooled)
    family = family_of(model_type, "--model-type")
    missing = sorted(set(family.needed) - set(settings))
    if missing:
        raise ConversionError(f"the checkpoint's settings lack {', '.join(missing)}")
    for name in family.arch_sizes["base"]:
        if name in settings and (type(settings[name]) is not int or settings[name] < 1):
            raise ConversionError(f"the checkpoint's settings have {name} {settings[name]!r}, which is no size")
    notes = _attention_notes(family, settings, drop_pooled) if settings["arch"].startswith(OWN_ARCHS) else []
    state = dict(state)
    notes += leave_out_marks(state) if drop_heads else []
    state.pop(NAMES, None)
    level_two = [name for name in family.names(settings).values() if LEVEL_TWO in name]
    if level_two and not any(name in state for name in level_two):
        raise ConversionError(
            "the checkpoint has no parameters of the second attention level, which begins with random values in "
            "training: train it first, or leave the level out with --drop-pooled"
        )
    family.modernize(state)
    embedding = next((state[name] for name in family.fairseq_tied if name in state), None)
    if embedding is None or embedding.dim() != 2:
        raise ConversionError(f"the checkpoint has no token embedding ({family.fairseq_tied[0]})")
    settings = {**settings, "vocab_size": embedding.size(0)}
    config = {"model_type": family.model_type, "architectures": [family.architecture]}
    config.update(family.write_config(settings), torch_dtype=str(embedding.dtype).removeprefix("torch."))
    converted, more = state_to_huggingface(family, settings, state, drop_heads, drop_pooled)
    return Converted(config, converted, notes + more)


def default_model_type(settings: Settings, *, sentencepiece: bool = False, drop_pooled: bool = False) -> str:
    """Return the Hugging Face model that computes what a fairseq model computes.

    Args:
        settings: the settings of the checkpoint, with its ``arch``.
        sentencepiece: its tokenizer is sentencepiece's, which tells XLM-R from RoBERTa.
        drop_pooled: its second level will be left out.

    Raises:
        ConversionError: the architecture is neither BART's nor RoBERTa's.
    """
    arch = settings["arch"]
    is_bart = _is_bart(arch)
    full_attention = not arch.startswith(OWN_ARCHS)
    relative = settings.get("relative_attention", "none") != "none"
    two_levels = arch.startswith("poolingformer_") and settings.get("pooled_layers", "none") not in ("", "none")
    if is_bart and settings.get("encoder_normalize_before"):  # mBART's layout; only its Poolingformer has windows
        return MBART.model_type if full_attention or drop_pooled else POOLINGFORMER_MBART.model_type
    if two_levels and not drop_pooled:
        return POOLINGFORMER_BART.model_type if is_bart else POOLINGFORMER_ROBERTA.model_type
    if is_bart:
        return "bart" if full_attention else "led"
    if relative:
        return "deberta"
    if "roberta" not in arch and "xlmr" not in arch:
        raise ConversionError(f"the checkpoint's architecture is {arch}; can convert those of BART and of RoBERTa")
    if not full_attention:
        return "longformer"
    return "xlm-roberta" if sentencepiece or "xlmr" in arch else "roberta"


def _is_bart(arch: str) -> bool:
    return "bart" in arch or arch == "poolingformer_reader"


def family_of(model_type: str | None, where: str) -> Family:
    """Return the family of a ``model_type``; ``where`` names its source in the message.

    Raises:
        ConversionError: there is none.
    """
    if model_type not in FAMILIES:
        raise ConversionError(f"{where} is {model_type!r}; can convert: {', '.join(FAMILIES)}")
    return FAMILIES[model_type]


def _attention_notes(family: Family, settings: Settings, drop_pooled: bool) -> list[str]:
    """Return notes on the settings of this package's attention that Hugging Face's configuration cannot hold."""
    if family.two_levels:
        return []
    pooled_layers = settings.get("pooled_layers", "none")
    if pooled_layers not in ("", "none") and not drop_pooled:
        raise ConversionError(
            f"the model has a second attention level (pooled_layers {pooled_layers}), which no Hugging Face model "
            "has; leave it out with --drop-pooled, and the converted model computes without it"
        )
    if family.model_type == "deberta":  # it refuses models with windows
        return []
    if not family.sliding_window:
        return [f"Hugging Face's {family.model_type} attends to the whole sequence: window_size is not kept"]
    count = settings.get("global_tokens", 0)
    return [
        f"global_tokens is {count}, which config.json cannot hold: with Hugging Face, pass a global_attention_mask "
        "that is 1 on as many first tokens and 0 on the others"
    ]
