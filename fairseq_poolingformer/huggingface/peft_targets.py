"""The modules that PEFT adapts in a Poolingformer where nobody names any: the short model's, in both levels."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, ClassVar

RENAMED = {"poolingformer-modernbert": {"fc1": "mlp.Wi", "fc2": "mlp.Wo", "final_layer_norm": "mlp_norm"}}
LEVEL_TWO = {  # level two's projection -> level one's names
    "pooled_q_proj": {"q_proj", "query", "q"},
    "pooled_k_proj": {"k_proj", "key", "k"},
    "pooled_v_proj": {"v_proj", "value", "v"},
}


class PeftAsks:
    """Comes first among a configuration's bases, since PEFT asks a configuration before it looks at its own tables.

    Attributes:
        layout_names: those of the projections; where they are BART's, so are the modules.
    """

    layout_names: ClassVar[tuple[str, ...]]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, and register the models with PEFT where somebody has imported it."""
        if "peft" in sys.modules:
            kind = self.model_type.removeprefix("poolingformer-")
            register(self.model_type, "bart" if "q_proj" in self.layout_names else kind)
        return super().to_dict()


@cache
def register(own: str, counterpart: str) -> None:
    """Add a ``model_type`` of this package to PEFT's tables: method -> ``model_type`` -> names of modules."""
    from peft.utils import constants

    for name, table in vars(constants).items():
        if not (name.startswith("TRANSFORMERS_MODELS_TO_") and name.endswith("_MODULES_MAPPING")):
            continue
        if modules := [RENAMED.get(own, {}).get(name, name) for name in table.get(counterpart, ())]:
            pooled = [second for second, first in LEVEL_TWO.items() if first & set(modules)]
            table[own] = [*modules, *pooled]
