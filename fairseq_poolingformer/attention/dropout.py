"""Dropout masks that the backward pass draws again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class KeepMask:
    """Which elements dropout keeps, decided by 16 random bits for each, drawn from a seed.

    Args:
        probability: probability of dropping an element, in [0, 1).
        seed: () int64, the seed of the draws; None without dropout.
    """

    probability: float
    seed: Tensor | None = None

    @classmethod
    def draw(cls, probability: float, device: torch.device) -> KeepMask:
        """A mask with a seed from the device's generator, which activation checkpointing restores to rerun a layer.

        On a GPU the seed stays there: a CUDA graph draws another one whenever it is replayed.
        """
        return cls(probability, draw_seed(device) if probability else None)

    @cached_property
    def dropped(self) -> int:
        """How many of the 65,536 draws of 16 bits drop an element."""
        return min(round(self.probability * 2**16), 2**16 - 1)

    @cached_property
    def keep(self) -> float:
        """The probability that an element is kept."""
        return 1.0 - self.dropped / 2**16

    @cached_property
    def _number(self) -> int:
        assert self.seed is not None
        return int(self.seed)

    def like(self, x: Tensor, place: tuple[int, ...] = ()) -> Tensor:
        """1 where an element is kept, else 0: like ``x``, the same again for the same shape and place.

        The comparison writes floats: many times faster on a CPU than ``bernoulli_``, or than a comparison to bools.
        """
        generator = torch.Generator(x.device).manual_seed(hash((self._number, *place)) % 2**62)
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
        bits.random_(-(2**63), None, generator=generator)
        drawn = bits.view(torch.int16)[: x.numel()].view(x.shape)
        return torch.ge(drawn, self.dropped - 2**15, out=torch.empty(x.shape, dtype=x.dtype, device=x.device))


def draw_seed(device: torch.device) -> Tensor:
    """() int64, on GPUs from the device's generator, elsewhere from the CPU's."""
    return torch.randint(2**62, (), device=device if device.type == "cuda" else "cpu")
