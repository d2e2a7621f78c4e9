"""Convert Hugging Face weights and configurations to fairseq's and back, with torch and safetensors alone.

The command line is :mod:`fairseq_poolingformer.cli.convert`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from fairseq_poolingformer.settings import DEFAULTS, TwoLevels
from fairseq_poolingformer.weights import ConversionError, Settings, State, listed
from fairseq_poolingformer.weights import heads as task_heads
from fairseq_poolingformer.weights.bart import BART, LED, MBART, POOLINGFORMER_BART, POOLINGFORMER_MBART
from fairseq_poolingformer.weights.deberta import DEBERTA
from fairseq_poolingformer.weights.family import OWN_ARCHS, Family, require_size
from fairseq_poolingformer.weights.loading import COPIED, OFFSET, TASK_HEAD, copied, with_unused_rows
from fairseq_poolingformer.weights.names import NAMES
from fairseq_poolingformer.weights.roberta import LONGFORMER, POOLINGFORMER_ROBERTA, ROBERTA, XLM_ROBERTA
from fairseq_poolingformer.weights.special_tokens import NAMES as MARK_NAMES
from fairseq_poolingformer.weights.special_tokens import leave_out_special_tokens

FAMILIES = {
    family.model_type: family
    for family in (
        *(BART, MBART, LED, ROBERTA, XLM_ROBERTA, LONGFORMER, DEBERTA),
        *(POOLINGFORMER_BART, POOLINGFORMER_MBART, POOLINGFORMER_ROBERTA),
    )
}
KINDS = {
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: (int | float, "a number"),
    str: (str, "a text"),
}
PER_LAYER = ("window_size", "pooled_window_size", "pooled_layers")  # a number in place of a text of one number
LEVEL_TWO = ".self_attn.pooled_"  # in the name of every parameter of the second attention level


@dataclass(frozen=True)
class Converted:
    """The result of a conversion."""

    settings: Settings  # fairseq's (names and values of its args), or Hugging Face's config.json
    state: State  # the parameters under their new names, in their own dtype
    notes: list[str]  # sentences that tell a person what was dropped or filled in


def to_fairseq(config: Settings, state: State, *, arch: str | None = None, drop_heads: bool = False) -> Converted:
    """Convert a Hugging Face model to fairseq's settings and parameters."""
    family = family_of(config.get("model_type"), "config.json: model_type")
    settings = family.read_config(config)
    _check_kinds(family, settings, "config.json has")
    state = _without_prefix(family.prefix, _with_present_names(state))
    state = {name: tensor for name, tensor in state.items() if name not in family.buffers}
    class_name = config.get("class_name", "")
    has_head = not drop_heads and task_heads.in_huggingface(state, family.model_type, class_name)
    of_head = task_heads.taken(state, task_heads.TO_FAIRSEQ) if has_head else {}
    notes = _drop(state, [name for name in state if name.startswith(family.heads)], drop_heads, "heads", "--drop-heads")
    notes += family.absorb(settings, state)
    for name in family.zero:
        bias = state.pop(name, None)
        if bias is not None and bool(bias.any()):
            raise ConversionError(f"{name} is not zero, and fairseq has no place for it")
    for tied in family.huggingface_tied:
        _untie(state, tied)
    names = family.names(settings)
    _check_names(state, names, f"Hugging Face {family.model_type} of this config.json")
    converted = {ours: state[theirs] for theirs, ours in names.items()}
    if not family.offset_rows:
        converted.update({table: with_unused_rows(converted[table]) for table in family.tables(settings)})
    _check_shapes(family, settings, converted)
    converted.update(dict.fromkeys(family.fairseq_tied, converted[family.fairseq_tied[0]]))
    converted.update({name: torch.tensor([value]) for name, value in family.buffers.items()})
    converted |= of_head

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
    if has_head:
        settings |= task_heads.read_config(config)
    return Converted({**settings, **family.level_two(settings)}, converted, notes)


def to_huggingface(
    settings: Settings,
    state: State,
    *,
    model_type: str | None = None,
    drop_heads: bool = False,
    drop_pooled: bool = False,
) -> Converted:
    """Convert a fairseq model to Hugging Face's configuration and parameters."""
    if not isinstance(settings.get("arch"), str):
        raise ConversionError("the checkpoint's settings name no architecture (arch)")
    if not drop_heads:
        task_heads.check_is_no_reader(state)
    has_head = not drop_heads and task_heads.in_fairseq(state)
    model_type = model_type or default_model_type(settings, drop_pooled=drop_pooled, has_head=has_head)
    family = family_of(model_type, "--model-type")
    if missing := sorted(set(family.needed) - set(settings)):
        raise ConversionError(f"the checkpoint's settings lack {', '.join(missing)}")
    for name in (*family.arch_sizes["base"], *family.position_tables.values()):
        if name in settings:
            require_size("the checkpoint's settings have", name, settings[name])
    _check_kinds(family, settings, "the checkpoint's settings have")
    notes = _attention_notes(family, settings, drop_pooled) if settings["arch"].startswith(OWN_ARCHS) else []
    parameters = set(family.parameters(settings))
    level_two = [name for name in parameters if LEVEL_TWO in name]
    if level_two and not any(name in state for name in level_two):
        raise ConversionError(
            "the checkpoint has no parameters of the second attention level, which begins with random values in "
            "training: train it first, or leave the level out with --drop-pooled"
        )
    state = dict(state)
    notes += leave_out_special_tokens(state) if drop_heads else []
    state.pop(MARK_NAMES, None)
    family.modernize(state)
    embedding = next((state[name] for name in family.fairseq_tied if name in state), None)
    if embedding is None or embedding.dim() != 2:
        raise ConversionError(f"the checkpoint has no token embedding ({family.fairseq_tied[0]})")
    settings = {**settings, "vocab_size": embedding.size(0)}
    config = {"model_type": family.model_type, "architectures": [family.architecture]}
    config.update(family.write_config(settings), torch_dtype=str(embedding.dtype).removeprefix("torch."))

    state = {name: tensor for name, tensor in state.items() if name not in family.buffers}
    what = "heads, which --model-type poolingformer-roberta has" if has_head else "heads"
    of_head = {}
    if has_head := has_head and task_heads.in_fairseq(state, family.model_type):
        config |= task_heads.write_config(settings, state, family.architecture)
        of_head = task_heads.taken(state, task_heads.TO_HUGGINGFACE)
    heads = [name for name in state if name.startswith("classification_heads.") or TASK_HEAD.match(name)]
    pooled = [name for name in state if LEVEL_TWO in name and name not in parameters]
    notes += _drop(state, heads, drop_heads, what, "--drop-heads")
    notes += _drop(state, pooled, drop_pooled, "parameters of the second attention level", "--drop-pooled")
    _untie(state, family.fairseq_tied)
    _check_names(state, parameters, "fairseq model of these settings")
    _check_shapes(family, settings, state)
    if family.sliding_window and not settings.get("separate_global_projections"):
        settings["separate_global_projections"] = True
        copies = copied(family.parameters(settings), state, COPIED)
        state.update(copies)
        filled = listed(map(NAMES[family.model_type].theirs, copies))
        notes.append(f"filled in as copies of the ordinary projections, since the model has no separate ones: {filled}")
    if not family.offset_rows:
        state.update({table: state[table][OFFSET:] for table in family.tables(settings)})
    names = family.names(settings).items()
    converted = _alone({theirs: state[ours].detach() for theirs, ours in names})
    notes += family.complete(settings, converted)
    if has_head:
        left = [name for name in converted if name.startswith(task_heads.LANGUAGE_MODEL)]
        notes += _drop(
            converted, left, True, f"the language model's head, which a {task_heads.TASK} model does not use", ""
        )
    bare = family.unprefixed
    converted = {name if name.startswith(bare) else family.prefix + name: value for name, value in converted.items()}
    return Converted(config, converted | of_head, notes)


def default_model_type(settings: Settings, *, drop_pooled: bool = False, has_head: bool = False) -> str:
    """Return the Hugging Face model that computes what a fairseq model computes."""
    model_type = _default_model_type(settings, drop_pooled)
    has_class = model_type in task_heads.FAMILIES
    if not has_head or has_class or drop_pooled or not settings["arch"].startswith(OWN_ARCHS):
        return model_type
    return task_heads.OWN_FAMILY


def _default_model_type(settings: Settings, drop_pooled: bool) -> str:
    arch = settings["arch"]
    is_bart = _is_bart(arch)
    full_attention = not arch.startswith(OWN_ARCHS)
    relative = settings.get("relative_attention", "none") != "none"
    two_levels = arch.startswith("poolingformer_") and TwoLevels.of(settings).layers_with_level_two()
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
    return "xlm-roberta" if "xlmr" in arch else "roberta"


def _is_bart(arch: str) -> bool:
    return "bart" in arch or arch == "poolingformer_demo"


def family_of(model_type: str | None, where: str) -> Family:
    """Return the family of a ``model_type``; ``where`` names its source in the message."""
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ConversionError(f"{where} is {model_type!r}; can convert: {', '.join(FAMILIES)}")
    return FAMILIES[model_type]


def _attention_notes(family: Family, settings: Settings, drop_pooled: bool) -> list[str]:
    """Return notes on the settings of this package's attention that Hugging Face's configuration cannot hold."""
    if family.two_levels:
        return []
    if TwoLevels.of(settings).layers_with_level_two() and not drop_pooled:
        raise ConversionError(
            f"the model has a second attention level (pooled_layers {settings['pooled_layers']}), which no Hugging "
            "Face model has; leave it out with --drop-pooled, and the converted model computes without it"
        )
    if family is DEBERTA:  # it refuses models with windows
        return []
    if not family.sliding_window:
        return [f"Hugging Face's {family.model_type} attends to the whole sequence: window_size is not kept"]
    count = settings.get("global_tokens", 0)
    return [
        f"global_tokens is {count}, which config.json cannot hold: with Hugging Face, pass a global_attention_mask "
        "that is 1 on as many first tokens and 0 on the others"
    ]


def _check_kinds(family: Family, settings: Settings, where: str) -> None:
    """Check that each setting that a conversion reads is of its default's type; None is the default."""
    for name, default in {**DEFAULTS, **family.arch_defaults}.items():
        value = settings.get(name)
        kind, what = KINDS.get(type(default), (object, ""))
        kind = str | int if name in PER_LAYER else kind
        fits = value in (0, 1) if kind is bool and isinstance(value, int) else isinstance(value, kind)
        if value is not None and not fits:
            raise ConversionError(f"{where} {name} {value!r}, which is not {what}")


def _check_shapes(family: Family, settings: Settings, state: State) -> None:
    """Check that the tables of embeddings and positions have the sizes in the settings."""
    rows = {table: settings[key] + OFFSET for table, key in family.tables(settings).items()}
    rows[family.fairseq_tied[0]] = settings["vocab_size"]
    for name, count in rows.items():
        if tuple(state[name].shape) != (count, settings["encoder_embed_dim"]):
            raise ConversionError(
                f"{name} is {tuple(state[name].shape)} where the configuration asks for "
                f"{(count, settings['encoder_embed_dim'])}: the weights and the configuration belong to different "
                "models"
            )


def _with_present_names(state: State) -> State:
    """Rename ``LayerNorm.gamma`` and ``LayerNorm.beta``, the names in weights that come from TensorFlow."""
    former = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    renamed = {}
    for name, tensor in state.items():
        old = next((old for old in former if name.endswith(old)), None)
        renamed[name.removesuffix(old) + former[old] if old else name] = tensor
    return renamed


def _without_prefix(prefix: str, state: State) -> State:
    """Drop the prefix that only models with a head have; refuse a name that comes with and without it."""
    bare = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    if len(bare) != len(state):
        twice = sorted(name for name in state if prefix + name in state)
        raise ConversionError(
            f"these parameters come both with and without {prefix!r}: {listed(twice)}; remove one of each pair"
        )
    return bare


def _drop(state: State, names: list[str], allowed: bool, what: str, option: str) -> list[str]:
    """Remove ``names`` from ``state``; return the note that says so."""
    if not names:
        return []
    if not allowed:
        raise ConversionError(
            f"the converted model has no place for the {what}: {listed(names)}; "
            f"{option} leaves them out, and the converted model computes without them"
        )
    for name in names:
        del state[name]
    return [f"left out {what}: {listed(names)}"]


def _untie(state: State, tied: tuple[str, ...]) -> None:
    """Check that the tied parameters that are present are equal, and keep one under the first name."""
    present = [name for name in tied if name in state]
    if not present:
        return  # _check_names names it with all other missing parameters
    value = state[present[0]]
    for name in present[1:]:
        if not torch.equal(value, state[name]):
            raise ConversionError(
                f"{present[0]} and {name} differ: only a model in which they are one parameter converts"
            )
    for name in present:
        del state[name]
    state[tied[0]] = value


def _alone(state: State) -> State:
    """Copy the tensors that share memory or have gaps in it; the others stay, so that a model is not there twice."""
    seen: set[int] = set()
    for name, tensor in state.items():
        storage = tensor.untyped_storage()
        whole = tensor.is_contiguous() and storage.nbytes() == tensor.numel() * tensor.element_size()
        if not whole or storage.data_ptr() in seen:
            state[name] = tensor.clone(memory_format=torch.contiguous_format)
        seen.add(storage.data_ptr())
    return state


def _check_names(state: State, names: Iterable[str], what: str) -> None:
    """Refuse a state whose names are not exactly ``names``."""
    missing = sorted(set(names) - set(state))
    unexpected = sorted(set(state) - set(names))
    if missing or unexpected:
        raise ConversionError(
            f"these are not the parameters of a {what}: missing: {listed(missing)}; unexpected: {listed(unexpected)}"
        )
