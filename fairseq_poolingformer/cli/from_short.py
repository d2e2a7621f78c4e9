"""``poolingformer convert from-short``: a long model for transformers from a short one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fairseq_poolingformer.settings import DEFAULTS, TwoLevelFlags, flag

HEADS = {  # --head -> the end of the class's name
    "masked-lm": "ForMaskedLM",
    "multiple-choice": "ForMultipleChoice",
    "question-answering": "ForQuestionAnswering",
    "sequence-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "none": "Model",
}


def add_command(commands: Any) -> None:
    """Add ``from-short`` to the subcommands of ``poolingformer convert``."""
    parser = commands.add_parser(
        "from-short",
        help="a short model of transformers' -> a long one, still for transformers",
        description="Make a long model from a BART, RoBERTa, BERT or ModernBERT, or one of their kin: learned "
        "positions are repeated; level two is pools of tokens in one softmax with the window, or the papers' where a "
        "flag is its own, such as --pool-mix. A LED or Longformer keeps its positions and windows, and has no level "
        "two unless --pooled-layers asks for it. The tokenizer is copied.",
    )
    parser.set_defaults(convert=run)
    parser.add_argument(
        "source", metavar="MODEL", help="folder of the short model, or its name on the Hugging Face Hub"
    )
    parser.add_argument("output", type=Path, metavar="OUTPUT_FOLDER", help="new folder to write")
    text = "tokens that the long model reads (default: 4096; LED, Longformer and ModernBERT: what they read)"
    parser.add_argument("--max-tokens", type=int, metavar="N", help=text)
    text = "of the long model (default: the one that the model has; without any, a decoder generates)"
    parser.add_argument("--head", choices=tuple(HEADS), help=text)
    TwoLevelFlags.add_args(parser, says_defaults=False)
    text = "add learned positions to the input (default: yes; models with --relative-attention can do without)"
    parser.add_argument("--absolute-positions", action=argparse.BooleanOptionalAction, help=text)
    text = "ModernBERT's rotary positions beyond the tokens that it was trained for: default (as they are), linear, "
    text += "ntk or yarn"
    parser.add_argument("--rope-type", metavar="TYPE", help=text)


def run(options: argparse.Namespace) -> None:
    """Make the long model and save it with its tokenizer."""
    from fairseq_poolingformer import huggingface  # first, since it says what to install

    # isort: split
    from transformers import AutoConfig

    from fairseq_poolingformer.huggingface.short_models import longest_input, model_type_of
    from fairseq_poolingformer.weights import ConversionError, files

    model_type_of(options.source)  # first: transformers builds what a configuration says
    config = AutoConfig.from_pretrained(options.source)
    family, end = made_class(config, options.head)
    model_class = getattr(huggingface, f"Poolingformer{family.name}{end}")
    settings = _settings(options, model_class.config_class, config, family.layout.first_position(config))
    model = model_class.from_short(options.source, **settings)
    if model.tokenizer is None:
        raise ConversionError(f"{options.source} has no tokenizer that can be read, which the warning above names")
    with files.new_folder(options.output) as folder:
        model.save_pretrained(folder)
    longest = longest_input(model)
    levels = {name: getattr(model.config, name) for name in ("window_size", "pooled_layers", "pool_merge")}
    said = ", ".join(f"{name} {value}" for name, value in levels.items())
    print(f"wrote {options.output}: {model_class.__name__} for {longest} tokens, {said}")


def made_class(config: Any, head: str | None) -> tuple[Any, str]:
    """Return the family of the long model, and the end of its class's name."""
    from fairseq_poolingformer.huggingface.families import family_of
    from fairseq_poolingformer.huggingface.short_models import why_not
    from fairseq_poolingformer.weights import ConversionError

    kind, short = config.model_type, (config.architectures or [""])[0]
    family = family_of(kind)
    if family is None or kind not in family.short:
        raise ConversionError(why_not(kind))
    ends = family.ends
    if head is not None and HEADS[head] not in ends:
        named = [name for name, end in HEADS.items() if end in ends]
        raise ConversionError(f"--head {head}: a {kind} becomes a model that generates, or one for {', '.join(named)}")
    if head is not None:
        return family, HEADS[head]
    end = next((end for end in ends if end != "Model" and short.endswith(end)), family.generating or "Model")
    if not family.generating and not short.endswith(end):
        raise ConversionError(f"the model is a {short or 'model of unknown kind'}: say with --head what to make of it")
    return family, end


def _settings(options: argparse.Namespace, config_class: type, config: Any, first: int) -> dict[str, Any]:
    """Return the settings that the command line gives; ``first`` is the first token's position."""
    from fairseq_poolingformer.weights import ConversionError

    overrides = {name: getattr(options, name) for name in (*DEFAULTS, "absolute_positions", "rope_type")}
    overrides = {name: value for name, value in overrides.items() if value is not None}
    lacking = [name for name in overrides if not hasattr(config_class, name)]
    if lacking:
        raise ConversionError(f"a Poolingformer made of a {config.model_type} has no {flag(lacking[0])}")
    TwoLevelFlags.of({"pooled_layers": "none", **overrides}).check(config.num_hidden_layers)
    if options.max_tokens is not None:
        overrides["max_position_embeddings"] = options.max_tokens + first
    return overrides
