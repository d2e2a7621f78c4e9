"""Weights of others' models: into fairseq's checkpoints and back, and short ones into long, two-level models.

:mod:`.names` has the names of all parameters, :mod:`.convert` the conversion, a family of models each a value in
:mod:`.bart`, :mod:`.roberta` or :mod:`.deberta`. :mod:`.loading` makes short weights fit a long model.
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

Settings = dict[str, Any]
State = dict[str, Tensor]


class ConversionError(ValueError):
    """A folder or checkpoint that cannot be converted without changing what the model computes."""


def listed(names: Iterable[str]) -> str:
    """Return names for a message: all of them, since a person will search for one."""
    return ", ".join(names) or "none"
