"""The flags that build the model of a converted checkpoint, and those that train from it on long documents."""

import shlex
from pathlib import Path

from fairseq_poolingformer.settings import DEFAULTS
from fairseq_poolingformer.weights import Settings
from fairseq_poolingformer.weights.family import Family

# The flags always name these and the positions, so that nobody trains with another attention by accident.
LEVELS = ("window_size", "pooled_layers", "separate_global_projections", "global_tokens", "global_relative_positions")
ATTENTION = (*LEVELS, "relative_attention", "max_relative_positions")
SWITCHES = {  # of settings whose flags have other names, or that a flag turns off
    ("no_token_positional_embeddings", True): "--no-absolute-positions",
    ("no_token_positional_embeddings", False): "--absolute-positions",
    ("no_scale_embedding", False): "--scale-embedding",
}
LONG = 4096  # a Poolingformer reads at least this many tokens
WINDOW = int(DEFAULTS["window_size"])


def model_flags(family: Family, settings: Settings) -> str:
    """Return the flags for ``fairseq-train`` that build a converted model as it is."""
    changed = {key: settings[key] for key, value in family.arch_defaults.items() if settings.get(key, value) != value}
    always = {key: settings[key] for key in (*family.position_tables.values(), *ATTENTION) if key in settings}
    sizes = family.size_flags(settings, settings["arch"].rpartition("_")[2])
    words = []
    for key, value in {"arch": settings["arch"], **sizes, **changed, **always}.items():
        flag = "--" + key.replace("_", "-")
        if isinstance(value, bool):
            words += [SWITCHES.get((key, value), flag if value else "")]
        else:
            words += [flag, str(value)]
    return shlex.join(filter(None, words))


def training_flags(family: Family, settings: Settings, folder: Path) -> str:
    """Return the flags that choose the model of a training on long documents from a converted checkpoint.

    LED and Longformer stay as they are. The others become Poolingformers with the windows of their architecture.
    """
    longer = dict(settings)
    if family.poolingformer_arch:
        longer = {key: value for key, value in settings.items() if key not in LEVELS}
        longer[family.input_length] = max(LONG, settings[family.input_length])
        if not settings["arch"].startswith("poolingformer_"):
            longer["arch"] = f"{family.poolingformer_arch}_{settings['arch'].rpartition('_')[2]}"
        longer.update(family.level_two(longer))
        if settings.get("max_relative_positions", WINDOW) < WINDOW:
            longer["window_size"] = settings["max_relative_positions"]  # no window may reach beyond these positions
    return f"{model_flags(family, longer)} --finetune-from-model {shlex.quote(str(folder / 'model.pt'))}"
