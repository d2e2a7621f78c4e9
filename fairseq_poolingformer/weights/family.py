"""A family of Hugging Face's models as a value: its names, its sizes, its settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fairseq_poolingformer.settings import DEFAULTS, TwoLevels, upper_half
from fairseq_poolingformer.weights import ConversionError, Settings, State
from fairseq_poolingformer.weights.loading import one_sided, two_sided
from fairseq_poolingformer.weights.names import GLOBAL, NAMES, NO_ABSOLUTE, POOLED, RELATIVE, parameters

OWN_ARCHS = ("poolingformer_", "led_", "longformer_")  # the other architectures are fairseq's, with full attention


@dataclass(frozen=True)
class SharedSettings:
    """The settings that mean the same in ``config.json`` and in a fairseq checkpoint, or have one possible value."""

    theirs: str  # what Hugging Face calls such models, for messages
    ours: str  # what fairseq calls them
    sizes: Mapping[str, str]  # Hugging Face's setting -> fairseq's; a config.json has them all
    rates: Mapping[str, tuple[str, float]]  # Hugging Face's -> fairseq's, and the value where there is none
    # fairseq's number of positions -> Hugging Face's, how many more that one counts, the value where there is none
    lengths: Mapping[str, tuple[str, int, int | None]]
    fixed: Settings  # fairseq's setting -> the only value that Hugging Face's models can have
    their_fixed: Settings  # Hugging Face's setting -> the only value that fairseq's models can have
    forgotten: Settings  # the same of settings that today's config.json has no more, or has by default
    written: Settings  # what else a config.json that is written has
    # what these models lack of `kinds` -> the sentence that says so, with a place for the value
    refusals: Mapping[str, str]
    # Hugging Face's setting -> its value where config.json has none, if that is another than the fixed
    absent: Settings = field(default_factory=dict)
    absent_here: Settings = field(default_factory=dict)  # the same of fairseq's settings

    def read(self, config: Settings) -> Settings:
        """Return fairseq's settings."""
        for key, value in {**self.forgotten, **self.their_fixed}.items():
            if (actual := config.get(key, self.absent.get(key, value))) != value:
                raise ConversionError(f"config.json: {key} is {actual!r}; {self.ours} needs {value!r}")
        needed = [*self.sizes, *(key for key, _, default in self.lengths.values() if default is None)]
        if missing := sorted(key for key in needed if config.get(key) is None):
            raise ConversionError(f"config.json lacks {', '.join(missing)}")
        for key in (*self.sizes, *(key for key, _, _ in self.lengths.values())):
            if config.get(key) is not None:
                require_size("config.json has", key, config[key])
        for key, (_, value) in self.rates.items():
            if type(rate := _given(config, key, value)) not in (int, float) or not 0 <= rate <= 1:
                raise ConversionError(f"config.json: {key} is {rate!r}, which is no number from 0 to 1")
        return {
            **{ours: config[key] for key, ours in self.sizes.items()},
            **{ours: float(_given(config, key, value)) for key, (ours, value) in self.rates.items()},
            **{ours: _given(config, key, value) - more for ours, (key, more, value) in self.lengths.items()},
            **self.fixed,
        }

    def write(self, settings: Settings) -> Settings:
        """Return this part of ``config.json``."""
        for key, value in self.fixed.items():
            if (actual := settings.get(key, self.absent_here.get(key, value))) != value:
                raise ConversionError(f"{key} is {actual!r}; {self.theirs} only {value!r}")
        return {
            **{key: settings[ours] for key, ours in self.sizes.items()},
            **{key: float(_given(settings, ours, value)) for key, (ours, value) in self.rates.items()},
            **{key: settings[ours] + more for ours, (key, more, _) in self.lengths.items()},
            **self.their_fixed,
            **self.written,
        }


def require_size(where: str, name: str, value: Any) -> None:
    """Refuse a setting that is no whole number, or none that a model has."""
    if type(value) is not int or not 1 <= value <= (1000 if "layers" in name else 2**22 - 1):
        raise ConversionError(f"{where} {name} {value!r}, which is no size")


def _given(settings: Settings, key: str, default: Any) -> Any:
    return default if settings.get(key) is None else settings[key]


@dataclass(frozen=True)
class Family:
    """One Hugging Face model family: names, settings, and what fairseq stores elsewhere; listed in :mod:`.convert`."""

    model_type: str  # of its config.json, and a key of NAMES
    architecture: str  # the class that config.json names on the way back
    prefix: str  # of the parameters' names in a Hugging Face model with a head, with its dot
    shared: SharedSettings
    # names of one parameter, the token embedding first; the first is written
    huggingface_tied: tuple[tuple[str, ...], ...]
    fairseq_tied: tuple[str, ...]  # fairseq's names of the token embedding; its checkpoints have all of them
    # fairseq position table -> the setting of its number of positions, the encoder's first
    position_tables: Mapping[str, str]
    arch: str  # fairseq architecture with the same computation, without its _base or _large
    poolingformer_arch: str  # this package's that also takes the weights; empty where `arch` is one
    arch_sizes: Mapping[str, Mapping[str, int]]  # base, large -> the sizes of these architectures
    arch_defaults: Mapping[str, Any]  # other settings of these architectures that may differ between models
    pooled_layers: Mapping[str, str]  # base, large -> the layers with level two in `poolingformer_arch`
    task: str  # that checkpoints name
    dictionaries: tuple[str, ...]  # names under which fairseq's tasks look for the dictionary
    kinds: Collection[str] = ()  # optional parameter groups: pooled, global, relative; see names.parameters
    offset_rows: bool = True  # its tables of positions have the rows before position 0, as fairseq's do
    # config.json, shared settings -> more; refuses what fairseq cannot express
    read_more: Callable[[Settings, Settings], Settings] = lambda config, settings: {}
    # settings -> more of config.json; refuses what the family cannot express
    write_more: Callable[[Settings], Settings] = lambda settings: {}
    # settings, Hugging Face state -> notes; removes the parameters that only Hugging Face has
    absorb: Callable[[Settings, State], list[str]] = lambda settings, state: []
    # settings, Hugging Face state -> notes; adds the parameters that only Hugging Face has
    complete: Callable[[Settings, State], list[str]] = lambda settings, state: []
    # renames the parameters of older fairseq checkpoints in place
    modernize: Callable[[State], None] = lambda state: None
    # fairseq buffers that Hugging Face lacks, with the value they always have
    buffers: Mapping[str, float] = field(default_factory=dict)
    zero: tuple[str, ...] = ()  # Hugging Face parameters that fairseq has no place for and that must be zero
    heads: tuple[str, ...] = ()  # first parts of the names of heads that the pretrained model lacks
    unprefixed: tuple[str, ...] = ()  # first parts of the names that Hugging Face writes without `prefix`
    # token -> row, to fairseq's special tokens
    read_vocabulary: Callable[[dict[str, int]], dict[str, int]] = lambda vocab: vocab
    write_vocabulary: Callable[[dict[str, int]], dict[str, int]] = lambda vocab: vocab  # the reverse
    # fairseq's name -> Hugging Face's, where they differ
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    @property
    def two_levels(self) -> bool:
        """Whether it is one of this package's models for transformers, which keep both levels."""
        return POOLED in self.kinds

    @property
    def sliding_window(self) -> bool:
        """Whether level one is a window with global tokens, not the whole sequence, and there is no level two."""
        return GLOBAL in self.kinds and not self.two_levels

    @property
    def needed(self) -> tuple[str, ...]:
        """The settings that a fairseq checkpoint must have."""
        return (*(ours for ours in self.shared.sizes.values() if ours != "vocab_size"), *self.position_tables.values())

    @property
    def input_length(self) -> str:
        """The name of the setting that says how many tokens the encoder takes."""
        return next(iter(self.position_tables.values()))

    @property
    def seq2seq(self) -> bool:
        """Whether it has a decoder."""
        return len(self.position_tables) > 1

    @property
    def levels(self) -> tuple[str, ...]:
        """The names of the settings of the two levels in its ``config.json``."""
        return tuple(n for n in DEFAULTS if RELATIVE in self.kinds or "relative" not in n) if self.two_levels else ()

    def read_config(self, config: Settings) -> Settings:
        """Return the fairseq settings of a ``config.json``."""
        settings = self.shared.read(config)
        settings |= self.read_more(config, settings)
        levels = asdict(TwoLevels.of(config))  # lists as text
        settings |= {name: levels[name] for name in self.levels if config.get(name) is not None}
        if not self.sliding_window:
            return settings
        windows = one_sided(config.get("attention_window", 512), settings["encoder_layers"])
        return {
            **settings,
            "window_size": ",".join(map(str, windows[:1] if len(set(windows)) == 1 else windows)),
            "pooled_layers": "none",
            "separate_global_projections": True,
            "global_tokens": 1,
        }

    def write_config(self, settings: Settings) -> Settings:
        """Return the ``config.json`` of a fairseq model's settings."""
        flags = asdict(TwoLevels.of(settings))
        for kind, given, none in (
            (RELATIVE, flags["relative_attention"], "none"),
            (GLOBAL, flags["separate_global_projections"], False),
        ):
            if kind not in self.kinds and given != none and kind in self.shared.refusals:
                raise ConversionError(self.shared.refusals[kind].format(given))
        config = self.shared.write(settings)
        config |= {name: flags[name] for name in self.levels} | self.write_more(settings)
        return {**config, "attention_window": two_sided(settings)} if self.sliding_window else config

    def parameters(self, settings: Settings) -> list[str]:
        """Return fairseq's names of a model's parameters; the token embedding, which comes first, appears once."""
        return parameters(settings, self.kinds, self.seq2seq)

    def names(self, settings: Settings) -> dict[str, str]:
        """Return Hugging Face's name without prefix -> fairseq's, one entry for each parameter of a model."""
        embedding, *others = self.parameters(settings)
        theirs = NAMES[self.model_type].theirs
        return {self.huggingface_tied[0][0]: embedding, **{theirs(name): name for name in others}}

    def tables(self, settings: Settings) -> Mapping[str, str]:
        """Return ``position_tables`` of a model, which may have none."""
        return {} if settings.get(NO_ABSOLUTE) else self.position_tables

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
        return {"pooled_layers": self.pooled_layers[size] if usual else upper_half(layers)}

    def default_arch(self, settings: Settings) -> str:
        """Return ``arch`` in the size that needs the fewest flags to become this model."""
        return f"{self.arch}_{min(self.arch_sizes, key=lambda size: len(self.size_flags(settings, size)))}"
