"""Dropout masks that the backward pass draws again instead of saving them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def dropout_seed() -> int:
    """A seed from the CPU's generator, which activation checkpointing restores to rerun a layer."""
    return int(torch.randint(2**62, ()))


@dataclass(frozen=True)
class KeepMask:
    """Which elements dropout keeps, decided by 16 random bits for each, drawn from a seed.

    Args:
        probability: probability of dropping an element, in [0, 1).
        seed: seed of the draws.
        at: the :class:`DropoutAt` whose pairs decide, instead of places in blocks (:meth:`like`).
    """

    probability: float
    seed: int
    at: Any = None

    @classmethod
    def draw(cls, probability: float) -> KeepMask:
        """A mask with a seed of :func:`dropout_seed`."""
        return cls(probability, dropout_seed() if probability else 0)

    @classmethod
    def of(cls, call: Any) -> KeepMask:
        """The mask of a :class:`Call`."""
        at = call.dropout_at
        return cls.draw(call.dropout_p) if at is None else cls(call.dropout_p, at.seed, at)

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
