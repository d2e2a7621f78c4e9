"""A Hugging Face model family as a table of settings, and the conversion that all families share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.weights.loading import TASK_HEAD

Settings = dict[str, Any]
State = dict[str, Tensor]

LEVEL_TWO = ".self_attn.pooled_"  # in the name of every parameter of the second attention level


class ConversionError(ValueError):
    """A folder or checkpoint that cannot be converted without changing what the model computes."""


@dataclass(frozen=True)
class Family:
    """One Hugging Face model family: its names and settings, and what fairseq stores elsewhere.

    To add a family, make one of these values and list it in :mod:`fairseq_poolingformer.weights`.

    Attributes:
        model_type: ``model_type`` of its ``config.json``.
        architecture: the class that ``config.json`` names on the way back.
        prefix: the start of the parameters' names in a Hugging Face model with a head, with its dot.
        names: settings -> {Hugging Face name without prefix: fairseq name}, one entry for each parameter.
        huggingface_tied: groups of names of one parameter, the token embedding first; the first name of a group is the
            one in ``names``, and the one written.
        fairseq_tied: fairseq's names of the token embedding; its checkpoints have all of them.
        position_tables: fairseq position table -> the setting that says how many positions it has, the encoder's first.
        position_offset: how many more rows fairseq has before position 0 than Hugging Face.
        needed: the settings that a fairseq checkpoint must have.
        read_config: ``config.json`` -> settings; raises ConversionError for what fairseq cannot express.
        write_config: settings -> ``config.json``; raises ConversionError for what the family cannot express.
        arch: fairseq architecture with the same computation, without its ``_base`` or ``_large``.
        poolingformer_arch: this package's architecture that also takes the weights, likewise; "" where ``arch`` is one.
        arch_sizes: "base", "large" -> the sizes of these architectures.
        arch_defaults: other settings of these architectures that may differ between models.
        task: the task that checkpoints name.
        dictionaries: names under which fairseq's tasks look for the dictionary.
        two_levels: the family is one of this package's models for transformers, which keep both levels.
        pooled_layers: "base", "large" -> the layers with level two in ``poolingformer_arch``.
        sliding_window: level one is a window with global tokens, not the whole sequence.
        absorb: settings, Hugging Face state -> notes; removes the parameters that only Hugging Face has.
        complete: settings, Hugging Face state -> notes; adds the parameters that only Hugging Face has.
        modernize: fairseq state; renames the parameters of older checkpoints in place.
        buffers: fairseq buffers that Hugging Face lacks, with the value they always have.
        zero: Hugging Face parameters that fairseq has no place for and that must be zero.
        heads: first parts of the names of Hugging Face heads that the pretrained model lacks.
        unprefixed: first parts of the names that Hugging Face writes without ``prefix``.
        read_vocabulary: token -> row of a GPT-2 BPE tokenizer, to fairseq's names and rows of the special tokens.
        write_vocabulary: the reverse.
        special_tokens: fairseq's name -> Hugging Face's of the special tokens that differ.
    """

    model_type: str
    architecture: str
    prefix: str
    names: Callable[[Settings], dict[str, str]]
    huggingface_tied: tuple[tuple[str, ...], ...]
    fairseq_tied: tuple[str, ...]
    position_tables: Mapping[str, str]
    position_offset: int
    needed: tuple[str, ...]
    read_config: Callable[[Settings], Settings]
    write_config: Callable[[Settings], Settings]
    arch: str
    poolingformer_arch: str
    arch_sizes: Mapping[str, Mapping[str, int]]
    arch_defaults: Mapping[str, Any]
    task: str
    dictionaries: tuple[str, ...]
    two_levels: bool = False
    pooled_layers: Mapping[str, str] = field(default_factory=dict)
    sliding_window: bool = False
    absorb: Callable[[Settings, State], list[str]] = lambda settings, state: []
    complete: Callable[[Settings, State], list[str]] = lambda settings, state: []
    modernize: Callable[[State], None] = lambda state: None
    buffers: Mapping[str, float] = field(default_factory=dict)
    zero: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    unprefixed: tuple[str, ...] = ()
    read_vocabulary: Callable[[dict[str, int]], dict[str, int]] = lambda vocab: vocab
    write_vocabulary: Callable[[dict[str, int]], dict[str, int]] = lambda vocab: vocab
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    @property
    def input_length(self) -> str:
        """The name of the setting that says how many tokens the encoder takes."""
        return next(iter(self.position_tables.values()))

    def size_flags(self, settings: Settings, size: str) -> dict[str, int]:
        """Return the sizes that differ from the architecture of a size; all where the family has no such size."""
        known = self.arch_sizes.get(size, {})
        return {key: settings[key] for key in self.arch_sizes["base"] if settings[key] != known.get(key)}

    def level_two(self, settings: Settings) -> Settings:
        """Return ``pooled_layers`` of a Poolingformer: its architecture's, or the upper half of other depths."""
        layers, size = settings["encoder_layers"], settings["arch"].rpartition("_")[2]
        if not settings["arch"].startswith("poolingformer_") or "pooled_layers" in settings:
            return {}
        usual = self.arch_sizes.get(size, {}).get("encoder_layers") == layers
        return {"pooled_layers": self.pooled_layers[size] if usual else f"{layers // 2}-{layers - 1}"}

    def default_arch(self, settings: Settings) -> str:
        """Return ``arch`` in the size that needs the fewest flags to become this model."""
        return f"{self.arch}_{min(self.arch_sizes, key=lambda size: len(self.size_flags(settings, size)))}"


@dataclass(frozen=True)
class Converted:
    """The result of a conversion.

    Attributes:
        settings: fairseq's settings (names and values of its ``args``), or Hugging Face's ``config.json``.
        state: the parameters under their new names, in their own dtype.
        notes: sentences that tell a person what was dropped or filled in.
    """

    settings: Settings
    state: State
    notes: list[str]


def state_to_fairseq(family: Family, settings: Settings, state: State, drop_heads: bool) -> tuple[State, list[str]]:
    """Rename Hugging Face parameters to fairseq's, one for one.

    Args:
        family: the family of the model.
        settings: fairseq settings made from its ``config.json``.
        state: Hugging Face name -> tensor.
        drop_heads: leave out classification and question-answering heads instead of refusing them.

    Returns:
        fairseq name -> tensor, and notes on what was left out.

    Raises:
        ConversionError: a parameter is missing, unknown, of the wrong size, or would be lost.
    """
    state = _without_prefix(family.prefix, _with_present_names(state))
    state = {name: tensor for name, tensor in state.items() if name not in family.buffers}
    heads = [name for name in state if name.startswith(family.heads)]
    notes = _drop(state, heads, drop_heads, "heads", "--drop-heads")
    notes += family.absorb(settings, state)
    for name in family.zero:
        bias = state.pop(name, None)
        if bias is not None and bool(bias.any()):
            raise ConversionError(f"{name} is not zero, and fairseq has no place for it")
    for tied in family.huggingface_tied:
        _untie(state, tied)
    names = family.names(settings)
    _check_names(state, names, f"Hugging Face {family.model_type} of this config.json")

    converted = {fairseq: state[huggingface] for huggingface, fairseq in names.items()}
    for table in position_tables(family, settings):
        # fairseq counts positions from padding_idx + 1 = 2; real tokens never use rows 0 and 1.
        unused = converted[table].new_zeros(family.position_offset, converted[table].size(1))
        converted[table] = torch.cat([unused, converted[table]]) if len(unused) else converted[table]
    converted.update(dict.fromkeys(family.fairseq_tied, converted[family.fairseq_tied[0]]))
    converted.update({name: torch.tensor([value]) for name, value in family.buffers.items()})
    check_sizes(family, settings, converted)
    return converted, notes


def state_to_huggingface(
    family: Family, settings: Settings, state: State, drop_heads: bool, drop_pooled: bool
) -> tuple[State, list[str]]:
    """Rename fairseq parameters to Hugging Face's; this undoes :func:`state_to_fairseq`.

    Args:
        family: the family to convert to.
        settings: the settings (``args``) of the fairseq checkpoint.
        state: fairseq name -> tensor.
        drop_heads: leave out classification heads instead of refusing them.
        drop_pooled: leave out the parameters of level two instead of refusing them.

    Returns:
        Hugging Face name -> tensor, no two sharing memory, and notes on what was left out.

    Raises:
        ConversionError: a parameter is missing, unknown, of the wrong size, or would be lost.
    """
    state = {name: tensor for name, tensor in state.items() if name not in family.buffers}
    heads = [name for name in state if name.startswith("classification_heads.") or TASK_HEAD.match(name)]
    kept = set(family.names(settings).values())
    pooled = [name for name in state if LEVEL_TWO in name and name not in kept]
    notes = _drop(state, heads, drop_heads, "heads", "--drop-heads")
    notes += _drop(state, pooled, drop_pooled, "parameters of the second attention level", "--drop-pooled")
    _untie(state, family.fairseq_tied)
    names = {fairseq: huggingface for huggingface, fairseq in family.names(settings).items()}
    _check_names(state, names, "fairseq model of these settings")
    check_sizes(family, settings, state)

    for table in position_tables(family, settings):
        state[table] = state[table][family.position_offset :]
    converted = {names[name]: tensor.detach().clone().contiguous() for name, tensor in state.items()}
    notes += family.complete(settings, converted)
    bare = family.unprefixed
    return {name if name.startswith(bare) else family.prefix + name: value for name, value in converted.items()}, notes


def position_tables(family: Family, settings: Settings) -> Mapping[str, str]:
    """Return the model's tables of absolute positions, which may be none."""
    return {} if settings.get("no_token_positional_embeddings") else family.position_tables


def check_sizes(family: Family, settings: Settings, state: State) -> None:
    """Check that the tables of embeddings and positions have the sizes in the settings."""
    width = settings["encoder_embed_dim"]
    rows = {table: settings[key] + 2 for table, key in position_tables(family, settings).items()}
    if "vocab_size" in settings:
        rows[family.fairseq_tied[0]] = settings["vocab_size"]
    for name, count in rows.items():
        if tuple(state[name].shape) != (count, width):
            raise ConversionError(
                f"{name} is {tuple(state[name].shape)} where the configuration asks for {(count, width)}: "
                "the weights and the configuration belong to different models"
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
    kept = state[present[0]]
    for name in present[1:]:
        if not torch.equal(kept, state[name]):
            raise ConversionError(
                f"{present[0]} and {name} differ: only a model in which they are one parameter converts"
            )
    for name in present:
        del state[name]
    state[tied[0]] = kept


def _check_names(state: State, names: Iterable[str], what: str) -> None:
    """Refuse a state whose names are not exactly ``names``."""
    missing = sorted(set(names) - set(state))
    unexpected = sorted(set(state) - set(names))
    if missing or unexpected:
        raise ConversionError(
            f"these are not the parameters of a {what}: missing: {listed(missing)}; unexpected: {listed(unexpected)}"
        )


def listed(names: Iterable[str]) -> str:
    """Return names for a message: all of them, since a person will search for one."""
    return ", ".join(names) or "none"
