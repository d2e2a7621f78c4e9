"""The form of what a checkpoint holds, checked before anything is built from it."""

import argparse
from collections.abc import Mapping
from typing import Any

import torch

LARGEST_CONFIGURATION = 100_000  # values; fairseq's own have about 500
# entries of a checkpoint of fairseq that it reads; each may be missing or None
FORMS = {
    "args": argparse.Namespace,
    "cfg": Mapping,
    "optimizer_history": list,
    "extra_state": Mapping,
    "task_state": Mapping,
    "last_optimizer_state": Mapping,
}


def fault(state: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a checkpoint's entries; None where nothing is.

    Args:
        state: what fairseq saves, with the parameters under ``"model"``.
    """
    parameters = state["model"]
    if not isinstance(parameters, Mapping):
        return f"its entry 'model' is a {type(parameters).__name__} in place of parameters by name"
    for name, value in parameters.items():
        if not isinstance(name, str):
            return f"the name of a parameter is {str(name)[:50]!r}, which is no text"
        if not isinstance(value, torch.Tensor):
            return f"its parameter {name[:100]!r} is a {type(value).__name__} in place of a tensor"
    for name, form in FORMS.items():
        value = state.get(name)
        if value is not None and not isinstance(value, form):
            return f"its entry {name!r} is a {type(value).__name__} in place of a {form.__name__}"
    history = state.get("optimizer_history") or []
    if not all(isinstance(entry, Mapping) for entry in history):
        return "its entry 'optimizer_history' holds something else than dictionaries"
    if any(not isinstance(entry.get("num_updates", 0), int) for entry in history):
        return "its number of updates is no integer"
    configuration = state.get("cfg") or {}
    if _is_endless([state.get("args"), configuration]):
        return f"its configuration has more than {LARGEST_CONFIGURATION:,} values"
    for name in ("model", "task"):
        group = configuration.get(name)
        if group is not None and not isinstance(group, Mapping | argparse.Namespace):
            return f"the options of its {name} are a {type(group).__name__} in place of options by name"
    return None


def _is_endless(values: list[Any]) -> bool:
    """Whether nested lists and dictionaries hold too many values."""
    count = 0
    while values:
        value = values.pop()
        count += 1
        if count > LARGEST_CONFIGURATION:
            return True
        if isinstance(value, argparse.Namespace):
            value = vars(value)
        if isinstance(value, Mapping):
            values.extend(value.values())
        elif isinstance(value, list | tuple | set):
            values.extend(value)
    return False
