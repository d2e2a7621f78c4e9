"""A part of a document that one process holds, and what it must know about the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.call import ScoreTerm
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.patterns import Pooling
from fairseq_poolingformer.attention.rotary import Rotary
from fairseq_poolingformer.attention.sharding.exchange import Route, Rows, exchange, gather
from fairseq_poolingformer.attention.sharding.global_tokens import SLOTS, DocumentTokens
from fairseq_poolingformer.attention.sharding.halo import pools_of
from fairseq_poolingformer.attention.sharding.layer import Steps
from fairseq_poolingformer.attention.sharding.ranks import Ranks, telling


@dataclass(frozen=True)
class Shard:
    """A part of a document in one process; :meth:`of` makes it, once for each batch.

    The tokens of a document are divided among ranks, each of which has one or more neighbouring tokens of every row.
    :meth:`attend` exchanges what lies at the borders: tokens within reach of the window, global tokens, and pooled keys
    within reach of level two.

    Args:
        parts: the tokens of each rank.
        ranks: the processes; None for one alone.
        padding: (B, T) bool, True at padding of this rank's part; None where no rank has any.
        tokens: the global tokens; None without any.
        equal_seeds: the ranks' generators give the same numbers; else dropout takes the first rank's.
    """

    parts: tuple[range, ...]
    ranks: Ranks | None
    padding: Tensor | None = None
    tokens: DocumentTokens | None = None
    equal_seeds: bool = True
    _made: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        batch: int,
        num_tokens: int,
        *,
        ranks: Ranks | None = None,
        global_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        device: torch.device | str = "cpu",
    ) -> Shard:
        """The shard of a batch. All ranks call this together; it exchanges their lengths and their global tokens.

        Args:
            batch: B, the same on all ranks.
            num_tokens: T, how many tokens of every row this rank has.
            ranks: the processes, such as :class:`GroupRanks`; None for one alone.
            global_mask: (B, T) bool, True at global tokens.
            key_padding_mask: (B, T) bool, True at padding.
            device: the layers' device, on which the ranks exchange tensors.

        Raises:
            ValueError: a size is out of range, or differs between ranks.
        """
        masks = {"global_mask": global_mask, "key_padding_mask": key_padding_mask}
        wrong = _fault(masks, batch, num_tokens)
        none = torch.zeros(batch, num_tokens, dtype=torch.bool, device=device)
        own = GlobalTokens(none if global_mask is None or wrong else global_mask)
        facts = [batch, num_tokens, own.num_slots, key_padding_mask is not None, wrong is not None]
        everyone = [facts]
        if ranks is not None:
            everyone = gather(ranks, torch.tensor([facts], device=device), [1] * ranks.size).tolist()
        batches, lengths, counts, padded, refused = zip(*everyone, strict=True)
        if any(refused):
            raise ValueError(wrong or f"part {refused.index(1)} of the document was refused, as its rank's error says")
        if min(lengths) < 1 or len(set(batches)) > 1:
            raise ValueError(
                f"every rank must have one token or more of the same number of rows, got {lengths} tokens of {batches} "
                "rows; divide the document among fewer ranks"
            )
        parts = tuple(range(*ends) for ends in pairwise(accumulate(lengths, initial=0)))
        part = parts[0 if ranks is None else ranks.rank]
        padding = key_padding_mask
        if any(padded) and padding is None:
            padding = torch.zeros_like(own.mask)
        tokens = None
        if any(counts):
            found = torch.stack([own.index + part.start, own.hidden(padding).long()], -1)
            found[..., 0].masked_fill_(own.unused, -1)
            if ranks is not None:
                found = gather(ranks, found, counts, dim=1)
            tokens = DocumentTokens.of(own, counts, found)
        return cls(parts, ranks, padding, tokens)

    @property
    def rank(self) -> int:
        return 0 if self.ranks is None else self.ranks.rank

    @property
    def part(self) -> range:
        """This rank's tokens."""
        return self.parts[self.rank]

    @property
    def length(self) -> int:
        """n, the tokens of the whole document."""
        return self.parts[-1].stop

    def attend(
        self,
        layer: Any,
        x: Tensor,
        score_terms: tuple[ScoreTerm, ...] = (),
        rotary: Rotary | None = None,
    ) -> Tensor:
        """The output of a :class:`TwoLevelAttention` at this rank's tokens.

        All ranks call this together, and all must run the backward pass: give a loss that depends on the output, if
        only times 0. A parameter's gradient is the sum over the ranks. With equal seeds of the CPU's generator, dropout
        is that of a shard of one process.

        Args:
            layer: the module.
            x: this rank's part of the layer's input, in the layout of ``layer.batch_first``.
            score_terms: terms that are added to level one's scores.
            rotary: the angles of this rank's tokens, then of the pools that start at them, :meth:`pools`.
        """
        with telling(self.ranks):
            return Steps(layer, self, x, score_terms, rotary).output(x)

    def pools(self, pooling: Pooling) -> range:
        """The pools that start at this rank's tokens; at the document's first ones also those that start before."""
        return pools_of(pooling, self.part)

    def agreed(self, seeds: Sequence[int], device: torch.device) -> Sequence[int]:
        """Seeds that are the same on all ranks."""
        if self.ranks is None or self.equal_seeds:
            return seeds
        everyone = gather(self.ranks, torch.tensor(seeds, device=device), [len(seeds)] * self.ranks.size)
        return everyone[: len(seeds)].tolist()

    def fetched(self, through: Rows, *fields: tuple[Rows, Sequence[range], Sequence[range]]) -> list[Rows]:
        """``through``, and of each field (rows, which of them each rank has, which each wants) what this rank wants.

        See :func:`exchange`.
        """
        if self.ranks is None:
            return [through, *(rows for rows, _, _ in fields)]
        routes = [(rows.x, Route.between(rows.dim, self.rank, owned, wanted)) for rows, owned, wanted in fields]
        passed, *found = exchange(self.ranks, through.x, *routes)
        pieces = zip(found, fields, strict=True)
        return [
            through._replace(x=passed),
            *(Rows(x, rows.dim, wanted[self.rank].start) for x, (rows, _, wanted) in pieces),
        ]

    def near(self, rows: Rows, wanted: Sequence[range], of_own: Callable[[], Tensor]) -> tuple[Rows, list[Tensor]]:
        """The rows of tokens that this rank wants, and [those of all global tokens, (B, H, G, D)].

        ``of_own`` returns the rows of this rank's global tokens, (B, H, own slots, D).
        """
        tokens, field = self.tokens, (rows, self.parts, wanted)
        if tokens is None:
            return self.fetched(rows, field)[1], []
        own, everything = Rows(of_own(), SLOTS, 0), [range(sum(tokens.counts))] * len(self.parts)
        _, found, of_globals = self.fetched(rows, field, (own, tokens.ranges(), everything))
        return found, [tokens.in_order(of_globals.x)]

    def joined(self, x: Tensor, dim: int) -> Tensor:
        """All ranks' parts of a tensor; a rank's gradient is the sum of what the ranks give."""
        return x if self.ranks is None else gather(self.ranks, x, [len(part) for part in self.parts], dim)

    def padding_of(self, wanted: tuple[range, ...]) -> Rows | None:
        """The padding (B, wanted) at the tokens that this rank wants; fetched once for each such division."""
        if self.padding is None:
            return None
        padding = Rows(self.padding, 1, self.part.start)
        return self.made(wanted, lambda: self.fetched(padding, (padding, self.parts, wanted))[1])

    def made(self, key: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` returned when it was first asked for with this key."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def _fault(masks: dict[str, Tensor | None], batch: int, num_tokens: int) -> str | None:
    """What is wrong with a rank's arguments, which it tells the others before it raises an error."""
    for name, mask in masks.items():
        if mask is not None and (mask.shape != (batch, num_tokens) or mask.dtype != torch.bool):
            return f"{name} must be {(batch, num_tokens)} bool, got {tuple(mask.shape)} {mask.dtype}"
    return None
