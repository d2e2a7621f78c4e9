"""How a batch's documents are divided among processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class ContextParallel:
    """How every batch is divided: each of the ranks has the whole batch's tokens, and computes some of its columns."""

    ranks: Any = None

    def __deepcopy__(self, memo: dict) -> ContextParallel:
        """The same one: copies of a model, such as that of ``--store-ema``, have the same processes."""
        return self

    def part(self, columns: int) -> range:
        """This rank's columns of so many, one of nearly equal parts."""
        rank = 0 if self.ranks is None else self.ranks.rank
        return range(columns * rank // self._size, columns * (rank + 1) // self._size)

    def own(self, x: Tensor, value: float = 0) -> Tensor:
        """This rank's columns of (B, T, …), which are padding where there are too few."""
        x = self.widened(x, value)
        part = self.part(x.size(1))
        return x[:, part.start : part.stop]

    def widened(self, x: Tensor | None, value: float = 0) -> Tensor | None:
        """(B, T, …), with columns of padding behind the others where there are fewer columns than ranks."""
        if x is None or x.size(1) >= self._size:
            return x
        return F.pad(x, (*(0, 0) * (x.dim() - 2), 0, self._size - x.size(1)), value=value)

    def shard(self, padding_mask: Tensor, global_mask: Tensor | None) -> Any:
        """This rank's part of a batch, one of nearly equal parts of its columns. All ranks call this together."""
        from fairseq_poolingformer.attention.sharding import Shard  # few trainings need it

        rows, columns = padding_mask.shape
        return Shard.of(
            rows,
            len(self.part(columns)),
            ranks=self.ranks,
            global_mask=None if global_mask is None else self.own(global_mask),
            key_padding_mask=self.own(padding_mask) if padding_mask.any() else None,
            device=padding_mask.device,
        )

    @property
    def _size(self) -> int:
        return 1 if self.ranks is None else self.ranks.size


def divide(model: nn.Module, division: ContextParallel | None) -> None:
    """Let a model compute divided batches; with None, whole ones again."""
    encoders = [module for module in model.modules() if hasattr(type(module), "division")]
    if not encoders:
        raise ValueError(
            f"the documents of {type(model).__name__} cannot be divided among processes: leave out "
            "--context-parallel-size"
        )
    for encoder in encoders:
        encoder.division = division


def count_once(criterion: nn.Module, ranks: Any) -> None:
    """Let the first of the ranks alone count a criterion's loss, which all of them compute of the whole batch.

    A criterion with a true attribute ``counts_share`` counts its own rank's share, and is left as it is.
    """
    if ranks.rank and not getattr(criterion, "counts_share", False):
        criterion.register_forward_hook(lambda _, inputs, output: _nothing(output))


def _nothing(counted: Any) -> Any:
    """Zeros in place of a loss, which keep the gradients of all parameters, a sample size and values to log."""
    if isinstance(counted, torch.Tensor):
        return counted * 0
    if isinstance(counted, dict):
        return {name: _nothing(value) for name, value in counted.items()}
    return tuple(map(_nothing, counted)) if isinstance(counted, tuple) else counted * 0
