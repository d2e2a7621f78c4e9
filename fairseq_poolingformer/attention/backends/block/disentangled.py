"""Disentangled scores in the block backend: products of queries and keys with one table row for each diagonal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends.block.diagonals import Diagonals
from fairseq_poolingformer.attention.backends.block.terms import TermOfStream, Tile
from fairseq_poolingformer.attention.backends.lanes import CHUNK, Source, take
from fairseq_poolingformer.attention.backends.plan import LOG2E, softmax_dtype
from fairseq_poolingformer.attention.score_terms.relative_bias import term_tensors

GROUP = 64  # keys whose products are made at a time under a wide band: of more keys more would lie outside the tile
RUN = 768  # keys whose products are made at a time under a narrow one, beyond those that a block of queries sees


@dataclass(frozen=True)
class _Run:
    """Neighbouring keys of a source, and their products with the table's rows for all diagonals of the band.

    Args:
        source: the keys', of which these are ``first`` … ``stop − 1``.
        ahead: by how many places the first key is ahead of the first query of the tile whose ``diagonals`` these are.
        diagonals: of its matrix (keys × queries).
        keys: (B, H, stop − first, D), scaled.
        scale: that of the keys.
        products: (H, B, stop − first, diagonals).
        grads: theirs, in the backward pass.
    """

    source: Source
    first: int
    stop: int
    ahead: int
    diagonals: Diagonals
    keys: Tensor
    scale: float
    products: Tensor
    grads: Tensor | None

    @classmethod
    def from_block(cls, tile: Tile, table: Tensor) -> _Run:
        """The run from the first key on that the tile's queries see."""
        source, key, num_keys = tile.source, tile.pairs.key, tile.source.key.size(2)
        first = max(0, tile.first_query + source.band.lowest)
        stop = max(tile.first_key + tile.num_keys, min(num_keys, first + source.width(tile.num_queries) + RUN))
        # more diagonals than queries: then no two entries of a tile share a place in the shifted view; and 17 more than
        # a multiple of 32: entries a power of two apart, as neighbours then could be, share few lines of the cache
        seen = tile.by_key()
        steps = max(len(seen) - 1, tile.num_queries)
        diagonals = replace(seen, highest=seen.lowest + steps + (16 - steps) % 32)
        keys = take(source.key, first, min(stop, num_keys) - first, stop - first, key.dtype)
        keys = keys.unflatten(0, key.shape[:2]) * tile.pairs.scale
        products = _products(keys, diagonals.rows_of(table))
        grads = None if source.grad_key is None else torch.zeros_like(products, dtype=softmax_dtype(products))
        ahead = tile.first_key - tile.first_query
        return cls(source, first, stop, ahead, diagonals, keys, tile.pairs.scale, products, grads)

    def holds(self, tile: Tile) -> bool:
        enough = len(self.diagonals) > tile.num_queries
        return enough and self.first <= tile.first_key and tile.first_key + tile.num_keys <= self.stop

    def laid_on(self, tile: Tile, x: Tensor) -> tuple[slice, Tensor]:
        """Of products or their gradients the tile's: its queries that have any, and a view (B, H, s, those)."""
        keys = slice(tile.first_key - self.first, tile.first_key - self.first + tile.num_keys)
        diagonals = self.diagonals.renumbered(tile.first_key - tile.first_query - self.ahead)
        return diagonals.laid_on(x[:, :, keys], tile.num_queries)


class DisentangledOfStream(TermOfStream):
    """c2p a tile at a time; p2c a run of keys at a time, for all the blocks of queries that see them.

    Under a band of more than ``CHUNK`` diagonals, whose products would be too many, p2c is made a tile at a time too.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tables, self.table_sums = term_tensors(self.narrowed_term()), self.narrowed(self.sums)
        self.run: _Run | None = None

    def add_scores(self, scores: Tensor, tile: Tile) -> None:
        if tile.pairs.with_global:
            super().add_scores(scores, tile)
            return
        for name, part, vectors, _, diagonals in self._parts(scores, tile):
            products = _products(vectors, diagonals.rows_of(self.tables[name]))
            columns, laid = diagonals.laid_on(products, part.size(3))
            part[..., columns].add_(laid.to(part.dtype), alpha=LOG2E)
        if self._in_runs(tile):
            run = self._run_of(tile)
            queries, laid = run.laid_on(tile, run.products)
            scores[:, :, queries].add_(laid.transpose(2, 3).to(scores.dtype), alpha=LOG2E)

    def add_gradients(self, grad_scores: Tensor, tile: Tile, grad_query: Tensor, grad_key: Tensor) -> None:
        if tile.pairs.with_global:
            super().add_gradients(grad_scores, tile, grad_query, grad_key)
            return
        for name, part, vectors, places, diagonals in self._parts(grad_scores, tile):
            total = (grad_query if name == "c2p" else grad_key)[:, :, places]
            grads = diagonals.taken_from(part)
            self._add_product_gradients(name, grads, vectors, diagonals, total, tile.pairs.scale)
        if self._in_runs(tile):
            run = self._run_of(tile)
            queries, laid = run.laid_on(tile, run.grads)
            laid += grad_scores[:, :, queries].transpose(2, 3)  # zero off the diagonals, where others' are

    def finish(self) -> None:
        run, self.run = self.run, None
        if run is not None and run.grads is not None:
            grad_key = run.source.grad_key[:, :, run.first : run.stop]
            self._add_product_gradients("p2c", run.grads, run.keys, run.diagonals, grad_key, run.scale)

    def _in_runs(self, tile: Tile) -> bool:
        band = tile.source.band
        return "p2c" in self.tables and band is not None and band.highest - band.lowest < CHUNK

    def _run_of(self, tile: Tile) -> _Run:
        if self.run is None or not self.run.holds(tile):
            self.finish()
            self.run = _Run.from_block(tile, self.tables["p2c"])
        return self.run

    def _parts(self, matrix: Tensor, tile: Tile) -> Iterator[tuple[str, Tensor, Tensor, slice, Diagonals]]:
        """The products that are made for the tile alone.

        Yields:
            The table's name; some rows of ``matrix``, which is (B, H, t, s) or in its place (B, H, s, t); their
            vectors, scaled; which of the tile's queries or keys these are; the diagonals that are seen.
        """
        if "c2p" in self.tables:
            seen = tile.by_query().within(tile.num_queries, tile.num_keys)
            yield "c2p", matrix, tile.pairs.query * tile.pairs.scale, slice(None), seen
        if "p2c" in self.tables and not self._in_runs(tile):
            for first in range(0, tile.num_keys, GROUP):
                keys = slice(first, min(first + GROUP, tile.num_keys))
                seen = tile.by_key().renumbered(first).within(keys.stop - first, tile.num_queries)
                yield (
                    "p2c",
                    matrix.transpose(2, 3)[:, :, keys],
                    tile.pairs.key[:, :, keys] * tile.pairs.scale,
                    keys,
                    seen,
                )

    def _add_product_gradients(
        self, name: str, grads: Tensor, vectors: Tensor, diagonals: Diagonals, total: Tensor, scale: float
    ) -> None:
        """Add what the gradients (H, B, n, diagonals) of products mean for the table, and for the vectors to ``total``.

        Args:
            name: the table's.
            grads: of :func:`_products`.
            vectors: (B, H, n, D), scaled.
            diagonals: whose rows they are multiplied with.
            total: (B, H, n or fewer, D), to be added to.
            scale: that of the vectors.
        """
        grads = grads.to(vectors.dtype).flatten(1, 2)
        rows = diagonals.rows_of(self.tables[name]).to(vectors.dtype)
        grad_vectors = torch.bmm(grads, rows).unflatten(1, vectors.shape[::2]).transpose(0, 1)
        total.add_(grad_vectors[:, :, : total.size(2)].to(total.dtype), alpha=scale)
        if name in self.table_sums:
            grad_rows = torch.bmm(grads.transpose(1, 2), _by_head(vectors))
            diagonals.add_rows(self.table_sums[name], grad_rows)


def _by_head(x: Tensor) -> Tensor:
    """(B, H, n, D) as (H, B·n, D): a batch shares the tables."""
    return x.transpose(0, 1).flatten(1, 2)


def _products(vectors: Tensor, rows: Tensor) -> Tensor:
    """Of vectors (B, H, n, D) with rows of a table (H, w, D): (H, B, n, w)."""
    products = torch.bmm(_by_head(vectors), rows.to(vectors.dtype).transpose(1, 2))
    return products.unflatten(1, vectors.shape[::2])
