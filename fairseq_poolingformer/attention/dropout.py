"""Dropout masks that the backward pass draws again."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class KeepMask:
    """Which elements dropout keeps, decided by 16 random bits for each, drawn from a seed.

    Args:
        probability: probability of dropping an element, in [0, 1).
        seed: seed of the draws.
    """

    probability: float
    seed: int

    @classmethod
    def draw(cls, probability: float) -> KeepMask:
        """A mask with a seed from the CPU's generator, which activation checkpointing restores to rerun a layer."""
        return cls(probability, int(torch.randint(2**62, ())) if probability else 0)

    @property
    def dropped(self) -> int:
        """How many of the 65,536 draws of 16 bits drop an element."""
        return min(round(self.probability * 2**16), 2**16 - 1)

    @property
    def keep(self) -> float:
        """The probability that an element is kept."""
        return 1.0 - self.dropped / 2**16

    def like(self, x: Tensor, place: tuple[int, ...] = ()) -> Tensor:
        """1 where an element is kept, else 0: like ``x``, the same again for the same shape and place.

        The comparison writes floats: many times faster on a CPU than ``bernoulli_``, or than a comparison to bools.
        """
        generator = torch.Generator(x.device).manual_seed(hash((self.seed, *place)) % 2**62)
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
        bits.random_(-(2**63), None, generator=generator)
        drawn = bits.view(torch.int16)[: x.numel()].view(x.shape)
        return torch.ge(drawn, self.dropped - 2**15, out=torch.empty(x.shape, dtype=x.dtype, device=x.device))
