"""fairseq models.

The models are imported, and the plugin is registered, when they are first asked for.
"""

from importlib import import_module
from typing import Any

import fairseq_poolingformer

__all__ = ["CharLanguageModel", "PoolingformerBART", "PoolingformerRoberta"]

_MODULES = {
    "CharLanguageModel": "char_lm.models",
    "PoolingformerBART": "models.bart",
    "PoolingformerRoberta": "models.roberta",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    fairseq_poolingformer.register()
    return getattr(import_module(f"fairseq_poolingformer.{_MODULES[name]}"), name)
