"""The modules that PEFT adapts in a Poolingformer where nobody names any: those of BART and RoBERTa, in both levels."""

from __future__ import annotations

try:
    from peft.utils import constants
except ImportError:
    constants = None  # PEFT is not installed

COUNTERPARTS = {"poolingformer-bart": "bart", "poolingformer-mbart": "bart", "poolingformer-roberta": "roberta"}
LEVEL_TWO = {  # level two's projection -> level one's names
    "pooled_q_proj": {"q_proj", "query"},
    "pooled_k_proj": {"k_proj", "key"},
    "pooled_v_proj": {"v_proj", "value"},
}


def register() -> None:
    """Add this package's models to PEFT's tables: method -> ``model_type`` -> names of modules."""
    for name, table in vars(constants).items():
        if not (name.startswith("TRANSFORMERS_MODELS_TO_") and name.endswith("_MODULES_MAPPING")):
            continue
        for own, counterpart in COUNTERPARTS.items():
            if modules := table.get(counterpart):
                pooled = [second for second, first in LEVEL_TWO.items() if first & set(modules)]
                table[own] = [*modules, *pooled]


if constants is not None:
    register()
