"""The settings of the two levels: names, defaults and checks; flags and configurations are made from these fields.

A setting of layers is text (``6-11``, or a value for each layer) or a list.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

from fairseq_poolingformer.choices import ALIGNMENTS, BACKEND_NAMES, POOL_MERGES, POOL_TYPES, UNLIMITED

Layers = str | int | Iterable[str | int]  # "6-11", 6, [6, 7], ["0-2", 5]
Self = TypeVar("Self", bound="TwoLevels")

PAPER_LAYERS = {  # the layers with level two in the papers' models (ICML §3.2, thesis §3.1), from 0
    "bart_base": "3-5",
    "bart_large": "6-11",
    "roberta_base": "6-8",
    "roberta_large": "15-20",
}


def upper_half(num_layers: int) -> str:
    """The layers with level two in models of other depths than the papers'."""
    return f"{num_layers // 2}-{num_layers - 1}"


def flag(name: str) -> str:
    """The flag of a setting."""
    return "--" + name.replace("_", "-")


def as_text(value: Layers) -> str:
    """A setting of layers as text; the values of a list are separated by commas."""
    return ",".join(map(str, value)) if isinstance(value, Iterable) and not isinstance(value, str) else str(value)


def layer_numbers(value: Layers, name: str = "pooled_layers") -> frozenset[int]:
    """Layer indices from ``"6-11"``, ``"0,2,4-6"``, a list of such, ``"none"`` or ``""``; ``name`` is for messages."""
    text = as_text(value)
    if text.strip() in ("", "none"):
        return frozenset()
    layers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if last < first:
            raise ValueError(f"{name} must be none, or 0-based layer numbers and ranges such as 0,3,6-11; got {text!r}")
        layers.update(range(first, last + 1))
    return frozenset(layers)


def per_layer(name: str, value: Layers, num_layers: int) -> tuple[int, ...]:
    """One number for each layer, from one number or several; ``all`` is a window without limits."""
    text = as_text(value)
    values = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() or part == "all" for part in values):
        raise ValueError(f"{name} must be a number, all, or one of these a layer separated by commas, got {text!r}")
    if len(values) not in (1, num_layers):
        raise ValueError(f"{name} has {len(values)} values for {num_layers} layers; give one, or one a layer")
    numbers = tuple(UNLIMITED if part == "all" else int(part) for part in values)
    return numbers * num_layers if len(numbers) == 1 else numbers


def _setting(default: Any, help: str, **more: Any) -> Any:
    """A field with its default, the papers' (§3.2, thesis §3.1), and facts about it."""
    return field(default=default, metadata={"help": help, **more})


@dataclass(repr=False)  # configurations of transformers, which inherit this, show themselves
class LevelSettings:
    """The settings of both levels. Windows count the tokens on one side; layers count from 0."""

    window_size: Layers = _setting(
        "128",
        "level one's window: tokens on each side, or all; one value or one a layer, separated by commas "
        "(Hugging Face's attention_window counts both sides: twice this)",
        metavar="W",
        each_layer=True,
        defaults="128; led_*: 512, longformer_*: 256",
    )
    pooled_layers: Layers = _setting(
        PAPER_LAYERS["bart_large"],
        "0-based layers with level two, e.g. 6-11 or 0,3,5-7; none for no level two",
        metavar="L",
        is_meaning=True,
        card="layers with level two, from 0",
        defaults=", ".join(f"{kind} {layers}" for kind, layers in PAPER_LAYERS.items()) + "; led_*, longformer_*: none",
    )
    pooled_window_size: Layers = _setting(
        "512",
        "level two's window: tokens on each side, or all; one value or one a layer, separated by commas "
        "(both sides: twice this)",
        metavar="W",
        each_layer=True,
        card="level-two window (tokens per side)",
    )
    pool_kernel_size: int = _setting(
        5, "tokens pooled to one key (κ)", metavar="K", is_meaning=True, card="tokens in a pool"
    )
    pool_stride: int = _setting(
        4, "tokens between neighbouring pooled keys (ξ)", metavar="S", card="tokens from one pool to the next"
    )
    pool_type: str = _setting(
        "ldconv", "how keys and values are pooled", choices=POOL_TYPES, is_meaning=True, card="pooling"
    )
    pool_alignment: str = _setting(
        "grid",
        "grid: pools at multiples of the stride, shared by all queries; query: pools of each query's own, "
        "as eq. 6-7 say literally",
        choices=ALIGNMENTS,
    )
    ldconv_heads: int = _setting(1, "sets of dynamic weights of the ldconv kinds", metavar="H", is_meaning=True)
    pool_mix: bool = _setting(
        False,
        "level two projects the layer's input instead of level one's output",
        is_meaning=True,
        card="level two reads the layer's input (Mix)",
    )
    pool_share_weights: bool = _setting(
        False,
        "level two uses level one's projections",
        is_meaning=True,
        card="level two shares level one's projections",
    )
    pool_merge: str = _setting(
        "sum",
        "sum: the papers' Y + Z; softmax: one softmax over the tokens and level one's own keys and values, pooled, "
        "without projections of level two (pools are then as wide as their stride, unless another flag says so)",
        choices=POOL_MERGES,
        is_meaning=True,
        card="how the two levels are merged",
    )
    dilation: Layers = _setting(
        "1",
        "tokens from one that a head sees in level one to the next: a number, or several separated by commas, each for "
        "as many neighbouring heads",
        metavar="D",
        is_meaning=True,
    )
    dilated_layers: Layers = _setting(
        "all", "0-based layers with this dilation, e.g. 6-11, or all", metavar="L", is_meaning=True
    )
    pooled_init: str = _setting(
        "random",
        "where a checkpoint has no second level, its projections start from random values, as copies of level one's, "
        "or as such copies with values of zero, so that the model begins as the one without level two",
        choices=("random", "copy", "copy-zero-values"),
    )
    position_init: str = _setting(
        "repeat",
        "where a checkpoint has fewer learned positions, they are repeated in a loop, interpolated (spread evenly, "
        "with those between from the two beside them), or followed by random ones",
        choices=("repeat", "interpolate", "random"),
    )
    random_position_offsets: bool = _setting(
        False,
        "in training every row begins at a random one of the learned positions, so that rows of all lengths train all "
        "of them",
        two_way=True,
    )
    global_tokens: int = _setting(1, "the first N tokens of the input are global", metavar="N")
    separate_global_projections: bool = _setting(
        False,
        "global tokens have projections of their own, as in Longformer",
        two_way=True,
        is_meaning=True,
        card="global tokens have projections of their own",
        defaults="no; led_*, longformer_*: yes",
    )
    attention_backend: str | None = _setting(
        None, "implementation of the attention; default: the fastest that can run the call", choices=BACKEND_NAMES
    )


@dataclass(repr=False)
class RelativeSettings:
    """The settings of DeBERTa's relative positions, which BART for transformers does not have."""

    relative_attention: str = _setting(
        "none",
        "DeBERTa's scores between contents and relative positions, in level one: "
        "content to position (c2p), position to content (p2c), or both",
        choices=("none", "c2p", "p2c", "c2p,p2c"),
        is_meaning=True,
        defaults="none; poolingformer_deberta_*: c2p,p2c",
    )
    max_relative_positions: int = _setting(
        512,
        "distances on each side with a relative position of their own (k); no window may reach beyond",
        metavar="K",
        is_meaning=True,
    )
    global_relative_positions: int = _setting(
        64, "the same to and from global tokens, spread evenly over the longest input (k_g)", metavar="K"
    )


@dataclass
class TwoLevels(RelativeSettings, LevelSettings):
    """All settings of the two levels; messages name them as arguments in Python."""

    def __post_init__(self) -> None:
        for name in (*settings_with("each_layer"), "pooled_layers", "dilation", "dilated_layers"):
            value = getattr(self, name)
            setattr(self, name, value if isinstance(value, int) else as_text(value))

    @classmethod
    def of(cls: type[Self], source: Any) -> Self:
        """Settings of a dict, a Namespace or a model's configuration; defaults where they are missing or None."""
        values = {name: source.get(name) if isinstance(source, dict) else getattr(source, name, None) for name in TABLE}
        return cls(**with_pools({name: value for name, value in values.items() if value is not None}))

    def spelled(self, name: str, *value: Any) -> str:
        """A setting, or a setting with a value, as the user gives it."""
        return f"{name}={value[0]!r}" if value else name

    def windows(self, num_layers: int, name: str = "window_size") -> tuple[int, ...]:
        """Level one's window in each layer, or with ``pooled_window_size`` level two's."""
        return per_layer(self.spelled(name), getattr(self, name), num_layers)

    def dilations(self, layer: int, num_heads: int) -> int | tuple[int, ...]:
        """Level one's dilation in one layer: one number, or one for each head."""
        layers = self.dilated_layers
        values = per_layer(self.spelled("dilation"), self.dilation, len(as_text(self.dilation).split(",")))
        if layers != "all" and layer not in layer_numbers(layers, self.spelled("dilated_layers")):
            return 1
        if num_heads % len(values):
            raise ValueError(f"{self.spelled('dilation')} has {len(values)} values, and must divide {num_heads} heads")
        return values[0] if len(values) == 1 else tuple(d for d in values for _ in range(num_heads // len(values)))

    def layers_with_level_two(self) -> frozenset[int]:
        """The 0-based numbers of the layers with level two."""
        return layer_numbers(self.pooled_layers, self.spelled("pooled_layers"))

    def check(self, num_layers: int) -> None:
        """Raise ``ValueError`` where settings that the attention does not check are wrong or do not go together."""
        spelled = self.spelled
        if not isinstance(self.global_tokens, int) or self.global_tokens < 0:  # configurations of transformers have any
            raise ValueError(f"{spelled('global_tokens')} must be 0 or more, got {self.global_tokens!r}")
        self._check_choice("pooled_init")
        self._check_choice("position_init")
        for name, value in (("pool_share_weights", True), ("pool_merge", "softmax")):
            if self.pooled_init == "copy-zero-values" and getattr(self, name) == value:
                raise ValueError(
                    f"{spelled('pooled_init', self.pooled_init)} and {spelled(name, value)} do not go together: level "
                    "two's values are level one's there; leave one of them out"
                )
        for name in settings_with("each_layer"):
            self.windows(num_layers, name)
        pooled_layers = self.layers_with_level_two()
        if pooled_layers and self.pool_merge == "softmax" and self.pool_kernel_size != self.pool_stride:
            raise ValueError(
                f"{spelled('pool_merge', 'softmax')} counts every token once: give "
                f"{spelled('pool_kernel_size', self.pool_stride)}, as wide as {spelled('pool_stride')}, or leave it out"
            )
        if pooled_layers and max(pooled_layers) >= num_layers:
            raise ValueError(
                f"{spelled('pooled_layers', self.pooled_layers)} names layer {max(pooled_layers)}, "
                f"but the encoder has layers 0 to {num_layers - 1}"
            )

    def check_relative(self, window: int, layer: int, dilation: int = 1) -> None:
        """Check the settings of relative positions, in a layer with relative attention and its widest window."""
        self._check_choice("relative_attention")
        spelled, k, k_g = self.spelled, self.max_relative_positions, self.global_relative_positions
        if k < 1 or k_g < 0:
            raise ValueError(
                f"{spelled('max_relative_positions')} must be 1 or more and {spelled('global_relative_positions')} "
                f"0 or more, got {k} and {k_g}"
            )
        if k < window * dilation and window != UNLIMITED:
            dilated = f" with {spelled('dilation', dilation)}" if dilation > 1 else ""
            raise ValueError(
                f"{spelled('window_size', window)}{dilated} (layer {layer}) reaches beyond "
                f"{spelled('max_relative_positions', k)}: give a window of at most {k // dilation}, "
                f"more relative positions, or "
                f"{spelled('window_size', 'all')}, where all distances beyond share one"
            )
        if self.global_tokens and not k_g and window != UNLIMITED:
            raise ValueError(
                f"{spelled('global_relative_positions', 0)} leaves global tokens without positions; give some, or "
                f"{spelled('global_tokens', 0)}"
            )
        if self.separate_global_projections:
            raise ValueError(
                f"{spelled('relative_attention')} and {spelled('separate_global_projections')} do not go together: "
                f"global tokens have relative positions of their own, {spelled('global_relative_positions')}; leave "
                "one of them out"
            )

    def remarks(self, num_layers: int) -> list[str]:
        """Sentences about settings that do nothing, or that the papers never have."""
        said, spelled = [], self.spelled
        if self.relative_attention == "none":
            sizes = ("max_relative_positions", "global_relative_positions")
            changed = [name for name in sizes if getattr(self, name) != TABLE[name].default]
            said = [f"{spelled(name)} does nothing without {spelled('relative_attention')}" for name in changed]
        windows, pooled = self.windows(num_layers), self.windows(num_layers, "pooled_window_size")
        narrower = [n for n in sorted(self.layers_with_level_two()) if pooled[n] < windows[n]]
        if narrower:
            said.append(
                f"{spelled('pooled_window_size')} is less than {spelled('window_size')} in layers "
                f"{', '.join(map(str, narrower))}: level two sees less than level one"
            )
        return said

    def _check_choice(self, name: str) -> None:
        value, choices = getattr(self, name), TABLE[name].metadata["choices"]
        if value not in choices:
            raise ValueError(f"{self.spelled(name)} must be one of {', '.join(choices)}; got {value!r}")


class TwoLevelFlags(TwoLevels):
    """TwoLevels, named in messages as a command line's flags."""

    def spelled(self, name: str, *value: Any) -> str:
        """``--window-size 4``, ``--pool-mix``, ``--no-separate-global-projections``."""
        if value and isinstance(value[0], bool):
            return flag(name if value[0] else f"no_{name}")
        return " ".join([flag(name), *map(str, value)])

    def check(self, num_layers: int) -> None:
        """Refuse projections of global tokens without any, too; transformers' models may be given a mask of them."""
        if self.separate_global_projections and not self.global_tokens:
            raise ValueError(
                "--separate-global-projections with --global-tokens 0 would never use those projections; give "
                "--global-tokens 1 or more, or --no-separate-global-projections"
            )
        super().check(num_layers)

    @staticmethod
    def add_args(parser: argparse.ArgumentParser, says_defaults: bool = True) -> None:
        """Add the flags to a parser, without defaults: the architectures set them, and help may say which."""
        for name, setting in TABLE.items():
            how = {key: setting.metadata[key] for key in ("help", "metavar", "choices") if key in setting.metadata}
            if isinstance(setting.default, bool):
                two_way = "two_way" in setting.metadata
                how |= {"action": argparse.BooleanOptionalAction if two_way else "store_true", "default": None}
            elif isinstance(setting.default, int):
                how["type"] = int
            default = setting.metadata.get("defaults", "no" if setting.default is False else setting.default)
            if says_defaults and default is not None:
                how["help"] += f" (default: {default})"
            parser.add_argument(flag(name), **how)


TABLE: dict[str, Field[Any]] = {
    setting.name: setting for group in (LevelSettings, RelativeSettings) for setting in fields(group)
}


def with_pools(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings, and with one softmax pools as wide as their stride where they do not say anything else."""
    if settings.get("pool_merge") != "softmax":
        return settings
    return {"pool_kernel_size": settings.get("pool_stride", DEFAULTS["pool_stride"]), **settings}


DEFAULTS = {name: setting.default for name, setting in TABLE.items()}


def settings_with(key: str) -> tuple[str, ...]:
    """The names of the settings with a property of :func:`_setting`'s, such as ``each_layer``."""
    return tuple(name for name, setting in TABLE.items() if setting.metadata.get(key))


def set_defaults(args: argparse.Namespace, **defaults: Any) -> None:
    """Set the attributes that ``args`` lacks, as fairseq's architectures do."""
    for name, value in defaults.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)
