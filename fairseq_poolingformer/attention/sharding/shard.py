"""A part of a document that one process holds, and what it must know about the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.call import ScoreTerm
from fairseq_poolingformer.attention.global_tokens import GlobalTokens
from fairseq_poolingformer.attention.patterns import Pooling
from fairseq_poolingformer.attention.rotary import Rotary
from fairseq_poolingformer.attention.sharding.chunks import Source, in_chunks
from fairseq_poolingformer.attention.sharding.document_tokens import SLOTS, DocumentTokens
from fairseq_poolingformer.attention.sharding.exchange import Route, exchange, gather
from fairseq_poolingformer.attention.sharding.layer import Steps
from fairseq_poolingformer.attention.sharding.places import Place
from fairseq_poolingformer.attention.sharding.ranks import Ranks, telling
from fairseq_poolingformer.attention.sharding.reach import pools_of


@dataclass(frozen=True)
class Shard:
    """A part of a document in one process; :meth:`of` makes it, once for each batch.

    The tokens of a document are divided among ranks, each of which has one or more neighbouring tokens of every row.
    :meth:`attend` exchanges what lies at the borders: tokens within reach of the window, global tokens, and pooled keys
    within reach of level two. A process may also go through its part in chunks of time, in the same way.

    Args:
        parts: the tokens of each rank.
        ranks: the processes; None for one alone.
        chunks: the tokens of each chunk of this rank's part.
        padding: (B, T) bool, True at padding of this rank's part; None where no rank has any.
        tokens: the global tokens; None without any.
        place: where the arrays of a part in chunks are.
        output: what has been computed of it, and the array of that whose rows chunks take.
        equal_seeds: the ranks' generators give the same numbers; else dropout takes the first rank's.
    """

    parts: tuple[range, ...]
    ranks: Ranks | None
    chunks: tuple[range, ...]
    padding: Tensor | None = None
    tokens: DocumentTokens | None = None
    place: Place = field(default_factory=Place)
    output: tuple[Tensor, Source] | None = None
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
        chunk_tokens: int | Sequence[int] | None = None,
        device: torch.device | str = "cpu",
        place: Place | None = None,
    ) -> Shard:
        """The shard of a batch. All ranks call this together; it exchanges their lengths and their global tokens.

        Args:
            batch: B, the same on all ranks.
            num_tokens: T, how many tokens of every row this rank has.
            ranks: the processes, such as :class:`GroupRanks`; None for one alone.
            global_mask: (B, T) bool, True at global tokens.
            key_padding_mask: (B, T) bool, True at padding.
            chunk_tokens: tokens of a chunk of time, or of each; None for no chunks.
            device: the layers' device, on which the ranks exchange tensors.
            place: where the arrays of a part in chunks are, of one process alone; None for the device.

        Raises:
            ValueError: a size is out of range, or differs between ranks.
        """
        if place is not None and ranks is not None:
            raise ValueError("place is for one process alone: leave it out, or ranks")
        masks = {"global_mask": global_mask, "key_padding_mask": key_padding_mask}
        wrong = _fault(masks, batch, num_tokens, chunk_tokens)
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
        chunks = _chunks(part, chunk_tokens)
        return cls(parts, ranks, chunks, padding, tokens, place or Place())

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
        *,
        before: Callable[[Tensor], Tensor] | None = None,
        after: Callable[[range, Tensor, Tensor], Tensor] | None = None,
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
            before: what each token of the input goes through first, such as a layer norm.
            after: what follows in an encoder layer: from a chunk's tokens in the document, the attention's output and
                ``x`` there, to the result, of the same shape.
        """
        with telling(self.ranks):
            return Steps(layer, self, x, score_terms, rotary, before, after).output(x)

    def pools(self, pooling: Pooling) -> range:
        """The pools that start at this rank's tokens; at the document's first ones also those that start before."""
        return pools_of(pooling, self.part)

    def agreed(self, seeds: Sequence[int], device: torch.device) -> Sequence[int]:
        """Seeds that are the same on all ranks."""
        if self.ranks is None or self.equal_seeds:
            return seeds
        everyone = gather(self.ranks, torch.tensor(seeds, device=device), [len(seeds)] * self.ranks.size)
        return everyone[: len(seeds)].tolist()

    def each_chunk(self, function: Callable[[Tensor], Tensor], x: Tensor, dim: int = 1) -> Tensor:
        """``function`` of each chunk's tokens, such as a feed-forward layer, which the backward pass computes again.

        Args:
            function: keeps the number of tokens.
            x: this rank's part.
            dim: the dimension of its tokens.
        """
        return self.by_chunk(lambda _, part: function(part), x, dim=dim)

    def by_chunk(self, function: Callable[..., Tensor], *sources: Tensor, dim: int = 1) -> Tensor:
        """As :meth:`each_chunk`; ``function`` gets a chunk's tokens in the document, and its part of each source."""
        rows = [(self.source(x, dim), self.chunks) for x in sources]
        return self.in_chunks(lambda *x: (function(*x),), self.chunks, rows, results=[(dim, self.chunks)])[0][0]

    def in_chunks(self, *arguments: Any, **named: Any) -> tuple[list[Tensor], list[tuple[Tensor, ...]]]:
        """:func:`in_chunks` at this shard's place."""
        return in_chunks(*arguments, **named, place=self.place_of_chunks)

    def source(self, x: Tensor, dim: int, start: int | None = None) -> Source:
        """An array whose rows the chunks take; of this rank's tokens, or of others from ``start`` on."""
        return Source(x, dim, self.place_of_chunks, self.part.start if start is None else start)

    def table(self, weight: Tensor) -> Source:
        """A parameter of which the chunks take rows; its gradient is where it is."""
        return Source(weight, 0, Place() if len(self.chunks) > 1 else None)

    def with_output(self, x: Tensor, dim: int) -> Shard:
        """The same shard with an output, of which several layers take rows: :meth:`source_of` makes one array of it."""
        return replace(self, output=(x, self.source(x, dim)))

    def source_of(self, x: Tensor, dim: int) -> Source:
        """:meth:`source`; the output's, where ``x`` is that and not a copy, as recomputed layers get."""
        return self.output[1] if self.output is not None and self.output[0] is x else self.source(x, dim)

    @property
    def place_of_chunks(self) -> Place | None:
        """Where arrays are; None without chunks."""
        return self.place if len(self.chunks) > 1 else None

    def own_tokens(self, device: torch.device) -> GlobalTokens:
        """This rank's global tokens, on the device of an array."""
        assert self.tokens is not None
        own = self.tokens.own
        if own.mask.device == device:
            return own
        return self.made(("own", device), lambda: GlobalTokens(own.mask.to(device)))

    def fetched(self, through: Source, *fields: tuple[Source, Sequence[range], Sequence[range]]) -> list[Source]:
        """``through``, and arrays with the rows of each field that this rank wants; see :func:`exchange`.

        Args:
            through: any array.
            fields: an array, which rows each rank has, and which each wants.
        """
        if self.ranks is None:
            return [through, *(x for x, _, _ in fields)]
        routes = [(x.whole, Route.between(x.dim, self.rank, owned, wanted)) for x, owned, wanted in fields]
        found = exchange(self.ranks, through.whole, *routes)
        forms = [(through.dim, through.start), *((x.dim, wanted[self.rank].start) for x, _, wanted in fields)]
        return [self.source(x, *form) for x, form in zip(found, forms, strict=True)]

    def near(self, x: Source, wanted: Sequence[range], of_own: Callable[[], Tensor]) -> tuple[Source, list[Tensor]]:
        """An array with the rows that this rank wants, and [those of all global tokens, (B, H, G, D)].

        Args:
            x: an array of this rank's tokens.
            wanted: the tokens that each rank wants.
            of_own: returns the rows of this rank's global tokens, (B, H, own slots, D).
        """
        tokens, field = self.tokens, (x, self.parts, wanted)
        if tokens is None:
            return self.fetched(x, field)[1], []
        everything = [range(sum(tokens.counts))] * len(self.parts)
        _, found, of_globals = self.fetched(x, field, (Source(of_own(), SLOTS), tokens.ranges(), everything))
        return found, [tokens.in_order(of_globals.whole)]

    def joined(self, x: Tensor, dim: int) -> Tensor:
        """All ranks' parts of a tensor; a rank's gradient is the sum of what the ranks give."""
        return x if self.ranks is None else gather(self.ranks, x, [len(part) for part in self.parts], dim)

    def padding_of(self, wanted: tuple[range, ...]) -> Source | None:
        """The padding (B, wanted) at the tokens that this rank wants; fetched once for each such division."""
        if self.padding is None:
            return None
        padding = self.source(self.padding, 1)
        return self.made(wanted, lambda: self.fetched(padding, (padding, self.parts, wanted))[1])

    def made(self, key: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` returned when it was first asked for with this key."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def _fault(masks: dict[str, Tensor | None], batch: int, num_tokens: int, sizes: Any) -> str | None:
    """What is wrong with a rank's arguments, which it tells the others before it raises an error."""
    for name, mask in masks.items():
        if mask is not None and (mask.shape != (batch, num_tokens) or mask.dtype != torch.bool):
            return f"{name} must be {(batch, num_tokens)} bool, got {tuple(mask.shape)} {mask.dtype}"
    try:
        _chunks(range(num_tokens), sizes)
    except ValueError as error:
        return str(error) if num_tokens else None
    return None


def _chunks(part: range, sizes: int | Sequence[int] | None) -> tuple[range, ...]:
    """A part in chunks of so many tokens; the last one may be shorter."""
    if sizes is None:
        return (part,)
    if isinstance(sizes, int):
        sizes = [min(sizes, len(part) - done) for done in range(0, len(part), sizes)] if sizes > 0 else [sizes]
    if min(sizes, default=0) < 1 or sum(sizes) != len(part):
        raise ValueError(f"chunk_tokens must be 1 or more, or the sizes of chunks of {len(part)} tokens; got {sizes}")
    return tuple(range(*ends) for ends in pairwise(accumulate(sizes, initial=part.start)))
