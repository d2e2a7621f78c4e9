"""``poolingformer-convert from-short``: a long model for transformers from a short one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fairseq_poolingformer.settings import DEFAULTS, TwoLevelFlags, flag
from fairseq_poolingformer.weights import ConversionError, files

HEADS = {  # --head -> the end of the class's name
    "masked-lm": "ForMaskedLM",
    "question-answering": "ForQuestionAnswering",
    "sequence-classification": "ForSequenceClassification",
    "none": "Model",
}
BART_LIKE = {"bart": "Bart", "led": "Bart", "mbart": "MBart"}
ROBERTA_LIKE = ("roberta", "xlm-roberta", "longformer")
ENCODERS = {**dict.fromkeys(ROBERTA_LIKE, "Roberta"), "modernbert": "ModernBert"}


def add_command(commands: Any) -> None:
    """Add ``from-short`` to the subcommands of ``poolingformer-convert``."""
    parser = commands.add_parser(
        "from-short",
        help="a short model of transformers' -> a long one, still for transformers",
        description="Make a long model from a BART, mBART, RoBERTa, XLM-R or ModernBERT: learned positions are "
        "repeated, level two starts with random values. A LED or Longformer keeps its positions and windows, and has "
        "no level two unless --pooled-layers asks for it. The tokenizer is copied.",
    )
    parser.set_defaults(convert=run)
    parser.add_argument(
        "source", metavar="MODEL", help="folder of the short model, or its name on the Hugging Face Hub"
    )
    parser.add_argument("output", type=Path, metavar="OUTPUT_FOLDER", help="new folder to write")
    parser.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="tokens that the long model reads (default: 4096; LED, Longformer and ModernBERT: what they read)",
    )
    parser.add_argument(
        "--head",
        choices=tuple(HEADS),
        help="of RoBERTa, XLM-R, Longformer and ModernBERT (default: the one that the model has)",
    )
    TwoLevelFlags.add_args(parser)
    parser.add_argument(
        "--absolute-positions",
        action=argparse.BooleanOptionalAction,
        help="add learned positions to the input (default: yes; models with --relative-attention can do without)",
    )
    parser.add_argument(
        "--rope-type",
        metavar="TYPE",
        help="ModernBERT's rotary positions beyond the tokens that it was trained for: default (as they are), linear, "
        "ntk or yarn",
    )


def run(options: argparse.Namespace) -> None:
    """Make the long model and save it with its tokenizer."""
    try:
        from transformers import AutoConfig, AutoTokenizer
    except ImportError as error:
        raise ConversionError("from-short needs transformers: pip install 'transformers>=5.5'") from error
    from fairseq_poolingformer import huggingface

    try:
        config = AutoConfig.from_pretrained(options.source)
        model_class = getattr(huggingface, class_name(config, options.head))
        settings = _settings(options, model_class.config_class, config)
        model = model_class.from_short(options.source, **settings)
        longest = model.config.max_position_embeddings - _unused_positions(config.model_type)
        tokenizer = AutoTokenizer.from_pretrained(options.source, model_max_length=longest)
    except OSError as error:  # transformers' sentences name the folder and what it lacks
        raise ConversionError(str(error)) from error
    with files.new_folder(options.output) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    kept = {name: getattr(model.config, name) for name in ("window_size", "pooled_layers")}
    print(
        f"wrote {options.output}: {model_class.__name__} for {longest} tokens, window_size {kept['window_size']}, "
        f"pooled_layers {kept['pooled_layers']}"
    )


def class_name(config: Any, head: str | None) -> str:
    """Return the name of the long model's class.

    Args:
        config: the short model's configuration.
        head: a key of HEADS; None for the head that the short model has.

    Raises:
        ConversionError: there is no such class.
    """
    kind, given = config.model_type, (config.architectures or [""])[0]
    if kind in BART_LIKE:
        if head is not None:
            raise ConversionError(f"--head {head}: a {kind} becomes a model that generates; leave the option out")
        return f"Poolingformer{BART_LIKE[kind]}ForConditionalGeneration"
    if kind not in ENCODERS:
        raise ConversionError(f"the model is a {kind}; can make long: {', '.join((*BART_LIKE, *ENCODERS))}")
    if head is None and not given.endswith(tuple(HEADS.values())):
        raise ConversionError(f"the model is a {given or 'model of unknown kind'}: say with --head what to make of it")
    end = HEADS[head] if head else next(end for end in HEADS.values() if given.endswith(end))
    return f"Poolingformer{ENCODERS[kind]}{end}"


def _settings(options: argparse.Namespace, config_class: type, config: Any) -> dict[str, Any]:
    """Return the settings that the command line gives.

    Raises:
        ValueError: the model has no such setting, or its value is out of range.
    """
    given = {name: getattr(options, name) for name in (*DEFAULTS, "absolute_positions", "rope_type")}
    given = {name: value for name, value in given.items() if value is not None}
    lacking = [name for name in given if not hasattr(config_class, name)]
    if lacking:
        raise ConversionError(f"a Poolingformer made of a {config.model_type} has no {flag(lacking[0])}")
    TwoLevelFlags.of({"pooled_layers": "none", **given}).check(config.num_hidden_layers)
    if options.max_tokens is not None:
        given["max_position_embeddings"] = options.max_tokens + _unused_positions(config.model_type)
    return given


def _unused_positions(kind: str) -> int:
    """Return how many more position embeddings a configuration counts than the model reads tokens."""
    return 2 if kind in ROBERTA_LIKE else 0
