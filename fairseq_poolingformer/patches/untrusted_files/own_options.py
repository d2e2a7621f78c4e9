"""What is used of a checkpoint's configuration: the options of its model, task and criterion, each by the schema.

Models, tasks and criterions that it names may be those of this plugin, of the ``--user-dir``, and fairseq's for text.
Others (for speech, and whatever reads more files when it is built) are refused.

Everything else in the file takes its default: outputs, logs, generation, tokenizers, and all paths. The exception is
the folder of its training's data, and only as :func:`data_folder` says.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import enum
import functools
import logging
import typing
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_poolingformer.checkpoint_reader.errors import ConfigurationError
from fairseq_poolingformer.checkpoint_reader.option_schema import Option, accepted, entry, is_number
from fairseq_poolingformer.checkpoint_reader.tensor_sizes import check_sizes
from fairseq_poolingformer.text.recorded_folder import recorded_folder, sizes_of_what_is_read

NAMES = ("arch", "task", "criterion", "optimizer", "_name")
KINDS = {"model": "arch", "task": "task", "criterion": "criterion"}  # section of a configuration -> name in a Namespace
DDP, NO_DDP = "ddp_backend", "legacy_ddp"  # which no loss refuses; a model that is read is not trained by it
# groups of options, and those of their names that a resume speaks of; None for all
SPOKEN_OF: dict[str, set[str] | None] = {
    "task": None,
    "criterion": None,
    "optimizer": None,
    "dataset": {"batch_size", "max_tokens", "required_batch_size_multiple", "train_subset", "num_shards"},
    "optimization": {"update_freq", "clip_norm", "lr"},
    "common": {"seed", "fp16", "bf16", "amp"},
}

# modules of fairseq whose models and tasks build nothing but layers and dictionaries from a configuration
MODELS = ("bart", "camembert", "fconv", "fconv_lm", "lightconv", "lightconv_lm", "lstm", "lstm_lm", "masked_lm")
MODELS += ("multilingual_transformer", "nat", "roberta", "transformer", "transformer_align", "transformer_lm", "xmod")
TASKS = ("cross_lingual_lm", "denoising", "language_modeling", "legacy_masked_lm", "masked_lm")
TASKS += ("multilingual_denoising", "multilingual_language_modeling", "multilingual_masked_lm")
TASKS += ("multilingual_translation", "semisupervised_translation", "sentence_prediction", "sentence_ranking")
TASKS += ("span_masked_lm", "translation", "translation_from_pretrained_bart", "translation_from_pretrained_xlm")
TASKS += ("translation_lev", "translation_multi_simple_epoch")
CRITERIONS = ("adaptive_loss", "cross_entropy", "label_smoothed_cross_entropy", "legacy_masked_lm", "masked_lm")
CRITERIONS += ("label_smoothed_cross_entropy_with_alignment", "nat_loss", "sentence_prediction", "sentence_ranking")
CRITERIONS += ("label_smoothed_cross_entropy_with_rdrop",)

# names in old checkpoints that fairseq replaces
FORMER_NAMES = {"speech_pretraining": "audio_pretraining", "audio_cpc": "wav2vec"}
FORMER_NAMES |= dict.fromkeys(("binary_cross_entropy", "kd_binary_cross_entropy"), "wav2vec")

logger = logging.getLogger(__name__)


def restricted(state: Mapping[str, Any], checkpoint: Path) -> dict[str, Any]:
    """Return a checkpoint's state with a configuration that holds nothing but what the schema allows."""
    check_configuration(state)
    state = dict(state)
    args, cfg = state.get("args"), state.get("cfg")
    if args is not None:
        options = {
            name: option for kind, key in KINDS.items() for name, option in declared(kind, entry(args, key)).items()
        }
        kept = _kept(options, vars(args), checkpoint)
        state["args"] = Namespace(**({DDP: NO_DDP} | _spoken_of_flat(vars(args)) | kept | _names(vars(args))))
        check_sizes(kept, state["model"])
    if cfg:
        state["cfg"] = _restricted_sections(cfg, state["model"], checkpoint)
    return state


def check_configuration(state: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that names a model, a task or a criterion beyond those a checkpoint may name."""
    from fairseq import criterions, models, tasks

    configuration, arguments = state.get("cfg") or {}, state.get("args")
    for kind, option, registries, allowed in (
        ("model", "arch", (models.MODEL_REGISTRY, models.ARCH_MODEL_REGISTRY), MODELS),
        ("task", "task", (tasks.TASK_REGISTRY,), TASKS),
        ("criterion", "criterion", (criterions.CRITERION_REGISTRY,), CRITERIONS),
    ):
        part = configuration.get(kind) if isinstance(configuration, Mapping) else None
        names = {entry(part, "_name"), entry(part, option), entry(arguments, option)}
        for name in {FORMER_NAMES.get(name, name) for name in names - {None}}:
            found = next((registry[name] for registry in registries if name in registry), None)
            if found is not None and not _may_be_named(found, f"fairseq.{kind}s", allowed):
                raise ConfigurationError(
                    f"its {kind} is {name!r}, and here checkpoints may name only this plugin's and fairseq's for "
                    "text. If you trust the file, use it in a process without this plugin"
                )


def _may_be_named(found: type, package: str, allowed: tuple[str, ...]) -> bool:
    module = found.__module__
    return not module.startswith("fairseq.") or any(
        module == f"{package}.{name}" or module.startswith(f"{package}.{name}.") for name in allowed
    )


def _restricted_sections(cfg: Mapping[str, Any], tensors: Mapping[str, Any], checkpoint: Path) -> dict[str, Any]:
    sections = copy.deepcopy(_defaults())
    names = {kind: _section_name(cfg.get(kind), key) for kind, key in KINDS.items()}
    own = {kind: declared(kind, name) for kind, name in names.items()}
    for kind in KINDS:
        given = cfg.get(kind)
        if isinstance(given, Namespace):  # the whole command line, which models read beyond their own options
            options = {name: option for each in own.values() for name, option in each.items()} | own[kind]
            sections[kind] = Namespace(**(_kept(options, vars(given), checkpoint) | _names(vars(given))))
        elif isinstance(given, Mapping):
            sections[kind] = _kept(own[kind], given, checkpoint) | {"_name": names[kind]}
    if sections["model"] is not None:
        model = sections["model"]
        check_sizes(vars(model) if isinstance(model, Namespace) else model, tensors)
    for group, said in SPOKEN_OF.items():
        given = cfg.get(group)
        if group not in KINDS and isinstance(given, Mapping):
            sections[group] = (sections[group] or {}) | _spoken_of(given, said)
    return sections


@functools.cache
def _defaults() -> dict[str, Any]:
    from fairseq.dataclass.configs import FairseqConfig
    from omegaconf import OmegaConf

    sections = OmegaConf.to_container(OmegaConf.structured(FairseqConfig), resolve=True, enum_to_str=True)
    sections["distributed_training"][DDP] = NO_DDP
    return sections | dict.fromkeys((*KINDS, "optimizer", "lr_scheduler", "scoring", "bpe", "tokenizer"))


@functools.cache
def declared(kind: str, name: str | None) -> dict[str, Option]:
    """Return the options of a model, a task or a criterion; none where there is no such name."""
    from fairseq import criterions, models, tasks

    classes, dataclass_of = {
        "model": ({**models.MODEL_REGISTRY, **models.ARCH_MODEL_REGISTRY}, models.MODEL_DATACLASS_REGISTRY),
        "task": (tasks.TASK_REGISTRY, tasks.TASK_DATACLASS_REGISTRY),
        "criterion": (criterions.CRITERION_REGISTRY, criterions.CRITERION_DATACLASS_REGISTRY),
    }[kind]
    found = classes.get(name)
    if found is None:
        return {}
    options = {}
    architecture = models.ARCH_CONFIG_REGISTRY.get(name) if kind == "model" else None
    if architecture is not None:  # which may set more than is declared
        settings = Namespace()
        with contextlib.suppress(AttributeError):  # one that needs options of a task
            architecture(settings)
        options = {key: _of_setting(value) for key, value in vars(settings).items()}
    for parent in (dataclass_of.get(name), getattr(found, "__dataclass", None)):
        if dataclasses.is_dataclass(parent):
            options |= {field.name: _of_field(field) for field in dataclasses.fields(parent)}
    parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
    found.add_args(parser)
    return {**options, **{action.dest: _of_action(action) for action in parser._actions if action.dest not in options}}


def _of_setting(value: Any) -> Option:
    return Option(_kind(type(value)), (), value if is_number(value) else None)


def _of_field(field: dataclasses.Field) -> Option:
    types = [each for each in (typing.get_args(field.type) or (field.type,)) if each is not type(None)]
    default = None if field.default is dataclasses.MISSING else field.default
    if isinstance(default, str) and default.startswith(("${", "???")):  # fairseq's own reference to another option
        default = None
    (kind,) = types if len(types) == 1 else (None,)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return Option(str, tuple(str(each.value) for each in kind), default)
    return Option(_kind(kind), (), default)


def _of_action(action: argparse.Action) -> Option:
    switch = argparse._StoreTrueAction | argparse._StoreFalseAction | argparse.BooleanOptionalAction
    if isinstance(action, switch) or getattr(action.type, "__name__", "") == "eval_bool":
        return Option(bool, (), action.default)
    default = None if action.default is argparse.SUPPRESS else action.default
    return Option(_kind(action.type), tuple(map(str, action.choices or ())), default)


def _kind(kind: Any) -> type | None:
    return kind if kind in (bool, int, float, str) else None


def _kept(options: Mapping[str, Option], given: Mapping[str, Any], checkpoint: Path) -> dict[str, Any]:
    """Return those of the given options that are declared: as given, or their default."""
    kept = {}
    for name, value in given.items():
        if value is None and name in options and is_number(options[name].default):
            continue  # as if it were not given: nothing computes with a None
        if name == "data" and name in options:
            kept[name] = str(data_folder(checkpoint, value))
        elif name in options and accepted(name, value, options[name]):
            kept[name] = value
        elif name in options and options[name].default is not None:
            kept[name] = options[name].default
    return kept


def _names(given: Mapping[str, Any]) -> dict[str, str]:
    return {name: given[name] for name in NAMES if given.get(name) and accepted(name, given[name], Option(str))}


def _spoken_of(given: Mapping[str, Any], names: set[str] | None) -> dict[str, Any]:
    """Return the options that a resumed training compares with its own; nothing is built from them."""
    chosen = {name: value for name, value in given.items() if names is None or name in names}
    return {name: value for name, value in chosen.items() if _is_plain(name, value)}


def _is_plain(name: str, value: Any) -> bool:
    with contextlib.suppress(ValueError):
        return accepted(name, value, Option(object))
    return False


def _spoken_of_flat(given: Mapping[str, Any]) -> dict[str, Any]:
    from fairseq.dataclass import configs
    from fairseq.optim import OPTIMIZER_DATACLASS_REGISTRY

    parts = [OPTIMIZER_DATACLASS_REGISTRY.get(entry(given, "optimizer"))]
    names = {field.name for part in parts if part is not None for field in dataclasses.fields(part)}
    for group in ("dataset", "optimization", "common"):
        fields = getattr(configs, f"{group.capitalize()}Config").__dataclass_fields__
        names |= (SPOKEN_OF[group] or set(fields)) & set(fields)
    return _spoken_of(given, names)


def _section_name(section: Any, key: str) -> str | None:
    return entry(section, "_name") or entry(section, key)


def recorded_data(state: Mapping[str, Any]) -> Any:
    """Return what a checkpoint records as its training's data, for :func:`data_folder`."""
    cfg = state.get("cfg")
    sections = [state.get("args"), *(cfg.get(part) for part in ("task", "model") if isinstance(cfg, Mapping))]
    found = [each.get("data") if isinstance(each, Mapping) else getattr(each, "data", None) for each in sections]
    return next((data for data in found if data is not None), None)


def data_folder(checkpoint: Path, recorded: Any) -> Path:
    """Return the folder in which to look for a checkpoint's dictionary and tokenizer where the user names none.

    That is the checkpoint's own folder; where that has neither, the one that :func:`recorded_folder` returns, whose
    name is logged.
    """
    folder = None if sizes_of_what_is_read(checkpoint.parent) else recorded_folder(recorded)
    if folder is None:
        return checkpoint.parent
    logger.info("the dictionary is looked for in the data folder that %s records: %s", checkpoint, folder)
    return folder
