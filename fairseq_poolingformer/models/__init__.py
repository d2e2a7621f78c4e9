"""fairseq models.

The models are imported, and the plugin is registered, when they are first asked for.
"""

from importlib import import_module
from typing import Any

import fairseq_poolingformer

__all__ = ["PoolingformerBART", "PoolingformerRoberta"]

_MODULES = {"PoolingformerBART": "bart", "PoolingformerRoberta": "roberta"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    fairseq_poolingformer.register()
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
