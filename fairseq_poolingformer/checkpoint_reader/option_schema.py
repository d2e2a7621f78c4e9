"""The values that a checkpoint's configuration may give to an option: a type and a bound for each, as tables.

An option that is not named here takes numbers and switches, and texts only out of its own list of choices. So no path,
no address and no ``${…}`` of a file is ever followed: such a text is left out, and the option has its default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairseq_poolingformer.checkpoint_reader.errors import ConfigurationError

LONGEST = 10_000  # characters of a text, and items of a list
LARGEST = 2**40  # of a number that has no bound below

_WORD = r"[A-Za-z0-9_@+-]{1,64}"
_WORDS = rf"{_WORD}(,{_WORD})*"
_WINDOWS = r"(all|none|[0-9]{1,7})( ?, ?(all|none|[0-9]{1,7}))*"
_LAYERS = r"(none|all)?|[0-9]{1,3}(-[0-9]{1,3})?( ?, ?[0-9]{1,3}(-[0-9]{1,3})?)*"
_LITERAL = r"([0-9 ()\[\],+*.-]|True|False)*"
_RATES = r"([0-9 ()\[\],+*.-]|[0-9]e[+-]?[0-9]|True|False)*"  # 2e-05, too
_ITEM = r"\"[a-z_]{1,40}\": ?(true|false|-?[0-9]{1,6}(\.[0-9]{1,17})?([eE]-[0-9]{1,2})?)"
_NUMBERS = rf"\{{({_ITEM}(, ?{_ITEM})*)?\}}"
# The options whose value is a text, or a list of texts and numbers, and the form of it; the others name files, or are
# not needed to build a model.
TEXTS = {
    **dict.fromkeys(("arch", "task", "criterion", "optimizer", "_name"), r"[A-Za-z0-9_.-]{1,100}"),
    **dict.fromkeys(("source_lang", "target_lang", "classification_head_name", "ranking_head_name"), _WORD),
    **dict.fromkeys(
        ("train_subset", "best_checkpoint_metric", "activation_fn", "pool_type", "pool_merge", "break_mode"), _WORD
    ),
    **dict.fromkeys(("langs", "lang_pairs", "monolingual_langs", "langtoks_specs", "languages"), _WORDS),
    **dict.fromkeys(("window_size", "pooled_window_size", "dilation", "attention_window"), _WINDOWS),
    **dict.fromkeys(
        ("pooled_layers", "dilated_layers", "encoder_layers_to_keep", "decoder_layers_to_keep", "early_exit"), _LAYERS
    ),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "decoder_attention", "character_filters"), _LITERAL),
    **dict.fromkeys(("encoder_kernel_size_list", "decoder_kernel_size_list"), _LITERAL),
    **dict.fromkeys(("adaptive_softmax_cutoff", "adaptive_input_cutoff", "update_freq"), _LITERAL),
    **dict.fromkeys(("lr", "adam_betas"), _RATES),
    **dict.fromkeys(("eval_rouge_args", "eval_bleu_args"), _NUMBERS),
    **dict.fromkeys(("pool_alignment", "pooled_init", "position_init", "relative_attention"), r"[a-z0-9,-]{1,20}"),
    **dict.fromkeys(("attention_backend", "relative_positions", "empty_memory", "initialization"), _WORD),
    **dict.fromkeys(("model_type", "activation_function", "hidden_act", "position_embedding_type"), _WORD),
    **dict.fromkeys(("lambda_parallel_config", "lambda_denoising_config", "lambda_otf_bt_config"), r"[0-9.,:]{0,200}"),
    **dict.fromkeys(("left_pad_source", "left_pad_target"), r"True|False"),
    **dict.fromkeys(("no_whole_word_mask_langs", "baseline_model_langs"), rf"({_WORDS})?"),
    "pooler_activation_fn": _WORD,
    "mask_names": r"[0-9]{1,7}-[0-9]{1,7}",
    "segment_logits": r"sum|mean",
    "problem_type": r"(single|multi)_label_classification|regression",
    "eval_bleu_detok": r"space|moses|nltk",
    "eval_bleu_remove_bpe": r"@@ |sentencepiece|subword_nmt|wordpiece|letter|_EOW|none",
    "pos_att_type": _WORDS,
}
OPEN = (None, object)  # declarations that leave the type to the tables
COUNTS = ("encoder_layers", "decoder_layers")  # of texts above; numbers in every model that converts
# Options that do more than build a model: a server of shared memory, a TPU, several processes
LEFT_OUT = {"use_plasma_view", "tpu", "ddp_backend"}
# the first pattern that a name of an option matches -> the least and the largest whole number
SIZES = (
    (r".*_layers|base_sublayers|coreference_depth", 0, 1000),
    (r".*attention_heads|ldconv_heads", 1, 4096),
    (r".*_heads", 0, 4096),
    (r".*_(dim|hidden_size)|head_hidden|num_classes", 0, 2**22),
    (r"vocab_size|d_model|hidden_size|intermediate_size|type_vocab_size", 0, 2**22),
    (r"max_relative_positions", -1, 2**27),  # -1 in DeBERTa: as many as positions
    (r"max_.*(positions|length)|.*_positions|tokens_per_sample|max_span|memory_length|eval_(context|stride)", 0, 2**27),
    (r".*position_embeddings", 1, 2**27),
    (r"pool_kernel_size|global_tokens|max_segments|max_span_width|span_ramp|window_scale", 0, 2**16),
    (r"pool_stride|required_.*_multiple", 1, 2**16),
)
RATES = r".*drop(out)?(_.*)?|layer_norm_eps"  # numbers in every model that converts


@dataclass(frozen=True)
class Option:
    """An option as its model, task or criterion declares it.

    Attributes:
        kind: bool, int or float; str for a text; None where the declaration does not say, which may be a text; object
            for whatever is plain.
        choices: the texts that it may be, if it has such a list.
        default: its value where a configuration has none.
    """

    kind: type | None = None
    choices: tuple[str, ...] = ()
    default: Any = None


def accepted(name: str, value: Any, option: Option) -> bool:
    """Whether an option keeps the value that a checkpoint gives to it; otherwise it has its default."""
    if value is None:
        return True
    if name in LEFT_OUT:
        return False
    low, high = next((bounds for pattern, *bounds in SIZES if re.fullmatch(pattern, name)), (None, None))
    number = is_number(value)
    if isinstance(value, int | float) and not abs(value) <= LARGEST:  # NaN, too
        raise _wrong(name, value, f"a number up to {LARGEST:,}")
    if isinstance(value, bool) and option.kind is object:
        return True
    if option.choices:
        if not (isinstance(value, str) and value in option.choices):
            raise _wrong(name, value, f"one of {', '.join(option.choices)}")
    elif high is not None and (option.kind is int or (option.kind in OPEN and (number or name not in TEXTS))):
        if not (number and value == int(value) and low <= value <= high):
            raise _wrong(name, value, f"a whole number from {low:,} to {high:,}")
    elif name in TEXTS and option.kind in (str, *OPEN):
        if not _fits(TEXTS[name], value):
            raise _wrong(name, value, "a plain value")
    elif option.kind in (int, float):
        if not number or (option.kind is int and value != int(value)):
            raise _wrong(name, value, "a whole number" if option.kind is int else "a number")
    elif option.kind is bool:
        if not (isinstance(value, bool) or (number and value in (0, 1)) or value in ("True", "False")):
            raise _wrong(name, value, "true or false")
    else:
        return number and option.kind is object  # a number for a text may be that of an open file
    return True


def plain_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those settings of a model that the tables above let through, for converting it without fairseq."""
    kept = {}
    for name, value in given.items():
        rate = re.fullmatch(RATES, name) is not None
        known = rate or name in TEXTS or any(re.fullmatch(pattern, name) for pattern, *_ in SIZES)
        if not known and isinstance(value, int | float) and not abs(value) <= LARGEST:
            continue
        if accepted(name, value, Option(int if name in COUNTS else float if rate else object)):
            kept[name] = (
                int(value) if known and not rate and isinstance(value, float) and value == int(value) else value
            )
    return kept


def entry(holder: Any, name: str) -> str | None:
    """Return a text of a Namespace or dictionary; None where there is none."""
    value = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    return value if isinstance(value, str) else None


def is_number(value: Any) -> bool:
    """Whether a value is a number; a truth value is not one."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fits(pattern: str, value: Any) -> bool:
    """Whether a text, a number or a flat list of both has a form."""
    values = value if isinstance(value, list | tuple) else [value]
    if len(values) > LONGEST or not all(isinstance(v, str) or (is_number(v) and abs(v) <= LARGEST) for v in values):
        return False
    text = ",".join(map(str, values))
    return len(text) <= LONGEST and re.fullmatch(pattern, text) is not None


def _wrong(name: str, value: Any, form: str) -> ConfigurationError:
    if isinstance(value, str):
        shown = repr(value) if len(value) <= 100 else f"{value[:100]!r}…"
    elif isinstance(value, bool | float) or (isinstance(value, int) and abs(value) <= LARGEST):
        shown = repr(value)
    else:
        shown = "a number beyond all bounds" if isinstance(value, int) else f"a {type(value).__name__}"
    return ConfigurationError(f"its option {name} is {shown}, and must be {form}")
