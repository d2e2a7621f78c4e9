"""Dropout masks that the backward pass draws again, by place in a block or by pair of query and key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

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


@dataclass(frozen=True)
class DropoutAt:
    """Where a call stands in a larger one: a pair of query and key keeps its draw however the larger one is divided.

    Args:
        seed: of the larger call; :func:`dropout_seed` draws one.
        query, key: the numbers of query 0 and key 0 in the larger call.
        batch, head: the same of row 0 and head 0.
        lane: tells calls apart whose numbers are of different things.
    """

    seed: int
    query: int = 0
    key: int = 0
    batch: int = 0
    head: int = 0
    lane: int = 0

    TO_GLOBAL: ClassVar[int] = 1  # lanes of keys, and of queries, that count as slots of global tokens
    FROM_GLOBAL: ClassVar[int] = 2

    def kept(self, weights: Tensor, mask: KeepMask, call: Any) -> Tensor:
        """What dropout multiplies the weights (B, H, T, S) of a whole :class:`Call` with."""
        (queries, keys), tokens = weights.shape[2:], call.global_keys()
        kept = self.of_pairs(weights, mask.dropped, range(queries), range(keys))
        if tokens is not None:
            columns, slots = weights[..., : tokens.num_slots], range(tokens.num_slots)
            of_slots = self.of_pairs(columns, mask.dropped, range(queries), slots, self.TO_GLOBAL)
            tokens.put(kept.transpose(2, 3), of_slots.transpose(2, 3))
        if (tokens := call.global_queries()) is not None:
            slots = range(tokens.num_slots)
            rows = weights.new_empty(*weights.shape[:2], len(slots), keys)
            tokens.put(kept, self.of_pairs(rows, mask.dropped, slots, range(keys), self.FROM_GLOBAL))
        return kept / mask.keep

    def of_blocks(self, weights: Tensor, dropped: int, block: Any, keys: Any) -> Tensor:
        """:meth:`of_pairs` for the weights (B·H, t, s) of the block backend's query block and key block."""
        index, places = block.group.index, block.lane.index
        lane = self.FROM_GLOBAL if isinstance(index, Tensor) else self.TO_GLOBAL if isinstance(places, Tensor) else 0
        queries, numbers = _some(index, block.start, weights.size(1)), _some(places, keys.start, weights.size(2))
        by_row = weights.unflatten(0, block.lane.key.shape[:2])
        return self.of_pairs(by_row, dropped, queries, numbers, lane, block.group.heads.start).flatten(0, 1)

    def of_pairs(
        self, x: Tensor, dropped: int, queries: range, keys: range, lane: int = 0, first_head: int = 0
    ) -> Tensor:
        """1 where the weights of some pairs are kept, else 0.

        Each pair's bits are a hash of seed, lane, row, head, query and key, in 32-bit integers: the key's is mixed into
        the query's by two rounds of multiplication.

        Args:
            x: (B, H, t, s), the result's shape, dtype and device.
            dropped: of 65,536 draws, how many drop a weight.
            queries, keys: (t,) and (s,) their numbers in the call.
            lane: added to the call's.
            first_head: the number of ``x``'s head 0 in the call.
        """
        device = x.device
        of_queries = 0 if lane == self.FROM_GLOBAL else self.query  # slots count from 0 in every part of a call
        of_keys = 0 if lane == self.TO_GLOBAL else self.key
        bits = self.bits_of_heads(x.size(0), range(first_head, first_head + x.size(1)), lane, device)
        bits = _mixed(bits[..., None] ^ _integers(queries, of_queries, device))
        bits = bits[..., None] ^ _mixed(_integers(keys, of_keys, device))  # (B, H, t, s)
        bits.mul_(FACTORS[0])
        bits ^= (bits >> 15).bitwise_and_(0x1FFFF)
        bits.mul_(FACTORS[1]).bitwise_right_shift_(16)
        return torch.ge(bits, dropped - 2**15, out=torch.empty(x.shape, dtype=x.dtype, device=device))

    def bits_of_heads(self, batch: int, heads: range, lane: int, device: torch.device) -> Tensor:
        """(B, H) int32, what decides about the pairs of each row and head."""
        low, high = torch.tensor([self.seed, self.seed >> 32]).to(torch.int32)
        seed = int(_mixed(_mixed(low) ^ high)) + self.lane + lane
        bits = torch.tensor([seed]).to(torch.int32).to(device)
        for numbers in (_integers(range(batch), self.batch, device), _integers(heads, self.head, device)):
            bits = _mixed(bits[..., None] ^ numbers)
        return bits[0]


FACTORS = (0x7FEB352D, 0x846CA68B - 2**32)  # of a mixing function of 32 bits with little bias


def _some(index: range | Tensor, start: int, count: int) -> range:
    """Some of a call's numbers of queries or keys; of global tokens (B, G) their slots."""
    numbers = range(index.size(1)) if isinstance(index, Tensor) else index
    first = numbers.start + start * numbers.step
    return range(first, first + count * numbers.step, numbers.step)


def _integers(values: range, first: int, device: torch.device) -> Tensor:
    return torch.arange(values.start + first, values.stop + first, values.step, dtype=torch.int32, device=device)


def _mixed(x: Tensor) -> Tensor:
    """A bijection of 32-bit integers, by two rounds of shifting and multiplication, that changes half of all bits."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * FACTORS[0]
    x = (x ^ ((x >> 15) & 0x1FFFF)) * FACTORS[1]
    return x ^ ((x >> 16) & 0xFFFF)
