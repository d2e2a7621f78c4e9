"""Disentangled scores in the block backend: products of queries and keys with one table row for each diagonal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.backends.block.lanes import KEYS_PER_BLOCK, KeyBlock, Lane
from fairseq_poolingformer.attention.backends.block.terms import BlockPair, Diagonals, TermOfGroup
from fairseq_poolingformer.attention.backends.plan import LOG2E, softmax_dtype
from fairseq_poolingformer.attention.call import term_tensors
from fairseq_poolingformer.attention.score_terms.disentangled import DisentangledPosition

FEW_KEYS = 64  # keys whose products are made at a time under a wide band; more keys have more products that nobody sees
MORE_KEYS = 768  # keys whose products are made ahead under a narrow band, beyond those that a query block sees


@dataclass(frozen=True)
class _KeyProducts:
    """Neighbouring keys of a lane, and their products with the table's rows for all diagonals of the band."""

    lane: Lane  # the keys' lane, of which these are ``first`` … ``stop − 1``
    first: int
    stop: int
    ahead: int  # offset of the first key from the first query in the block pair that ``diagonals`` are of
    diagonals: Diagonals  # of its matrix (keys × queries)
    keys: Tensor  # (B, H, stop − first, D), scaled
    scale: float  # what the keys are scaled by
    products: Tensor  # (H, B, stop − first, diagonals)
    grads: Tensor | None  # gradients of the products, in the backward pass

    @classmethod
    def from_pair(cls, pair: BlockPair, table: Tensor) -> _KeyProducts:
        """The products of the keys from the first one on that the pair's queries see."""
        lane, key, num_keys = pair.lane, pair.pairs.key, pair.lane.key.size(2)
        first = max(0, pair.first_query + lane.band.lowest)
        stop = max(pair.first_key + pair.num_keys, min(num_keys, first + lane.width(pair.num_queries) + MORE_KEYS))
        # more diagonals than queries, so that no two entries of a block share a place in the shifted view; and 17 more
        # than a multiple of 32, because neighbouring entries a power of two apart would share few lines of the cache
        seen = pair.by_key()
        steps = max(len(seen) - 1, pair.num_queries)
        diagonals = replace(seen, highest=seen.lowest + steps + (16 - steps) % 32)
        keys = lane.take(lane.key, KeyBlock(first, stop, min(stop, num_keys) - first), key.dtype)
        keys = keys.unflatten(0, key.shape[:2]) * pair.pairs.scale
        products = _products(keys, diagonals.rows_of(table))
        grads = None if lane.grad_key is None else torch.zeros_like(products, dtype=softmax_dtype(products))
        ahead = pair.first_key - pair.first_query
        return cls(lane, first, stop, ahead, diagonals, keys, pair.pairs.scale, products, grads)

    def holds(self, pair: BlockPair) -> bool:
        """Whether it has all products of the pair's keys."""
        enough = len(self.diagonals) > pair.num_queries
        return enough and self.first <= pair.first_key and pair.first_key + pair.num_keys <= self.stop

    def laid_on(self, pair: BlockPair, x: Tensor) -> tuple[slice, Tensor]:
        """The pair's share of the products or of their gradients: its queries with any, a view (B, H, s, those)."""
        keys = slice(pair.first_key - self.first, pair.first_key - self.first + pair.num_keys)
        diagonals = self.diagonals.renumbered(pair.first_key - pair.first_query - self.ahead)
        return diagonals.laid_on(x[:, :, keys], pair.num_queries)


class DisentangledOfGroup(TermOfGroup):
    """Both products of a DisentangledPosition in one query group."""

    # p2c is computed ahead for many keys, for all query blocks that see them, where the band has few diagonals

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tables, self.table_sums = term_tensors(self.term_of_group()), self.of_group(self.sums)
        self.key_products: _KeyProducts | None = None
        self.rows: dict[str, tuple[Diagonals, Tensor]] = {}  # the last rows taken from each table

    def add_scores(self, scores: Tensor, pair: BlockPair) -> None:
        if pair.pairs.with_global:
            super().add_scores(scores, pair)
            return
        for name, rows, vectors, _, diagonals in self._pair_products(scores, pair):
            products = _products(vectors, self._rows_of(name, diagonals))
            columns, laid = diagonals.laid_on(products, rows.size(3))
            rows[..., columns].add_(laid.to(rows.dtype), alpha=LOG2E)
        if self._is_ahead(pair):
            made = self._products_ahead(pair)
            queries, laid = made.laid_on(pair, made.products)
            scores[:, :, queries].add_(laid.transpose(2, 3).to(scores.dtype), alpha=LOG2E)

    def add_gradients(self, grad_scores: Tensor, pair: BlockPair, grad_query: Tensor, grad_key: Tensor) -> None:
        if pair.pairs.with_global:
            super().add_gradients(grad_scores, pair, grad_query, grad_key)
            return
        for name, rows, vectors, places, diagonals in self._pair_products(grad_scores, pair):
            total = (grad_query if name == "c2p" else grad_key)[:, :, places]
            grads = diagonals.taken_from(rows)
            self._add_product_gradients(name, grads, vectors, diagonals, total, pair.pairs.scale)
        if self._is_ahead(pair):
            made = self._products_ahead(pair)
            queries, laid = made.laid_on(pair, made.grads)
            laid += grad_scores[:, :, queries].transpose(2, 3)  # adds zeros to others' places, off the diagonals

    def finish(self) -> None:
        made, self.key_products = self.key_products, None
        if made is not None and made.grads is not None:
            grad_key = made.lane.grad_key[:, :, made.first : made.stop]
            self._add_product_gradients("p2c", made.grads, made.keys, made.diagonals, grad_key, made.scale)

    def _rows_of(self, name: str, diagonals: Diagonals) -> Tensor:
        """The rows of a table for the diagonals; away from a sequence's ends all blocks have the same."""
        if name not in self.rows or self.rows[name][0] != diagonals:
            self.rows[name] = diagonals, diagonals.rows_of(self.tables[name])
        return self.rows[name][1]

    def _is_ahead(self, pair: BlockPair) -> bool:
        band = pair.lane.band
        return "p2c" in self.tables and band is not None and band.highest - band.lowest < KEYS_PER_BLOCK

    def _products_ahead(self, pair: BlockPair) -> _KeyProducts:
        """The products of the pair's keys and of keys after them; new ones when the last ones do not hold the pair."""
        if self.key_products is None or not self.key_products.holds(pair):
            self.finish()
            self.key_products = _KeyProducts.from_pair(pair, self.tables["p2c"])
        return self.key_products

    def _pair_products(self, matrix: Tensor, pair: BlockPair) -> Iterator[tuple[str, Tensor, Tensor, slice, Diagonals]]:
        """Yield this pair's products: table, rows of ``matrix`` or its transpose, scaled vectors, their places."""
        if "c2p" in self.tables:
            seen = pair.by_query().within(pair.num_queries, pair.num_keys)
            yield "c2p", matrix, pair.pairs.query * pair.pairs.scale, slice(None), seen
        if "p2c" in self.tables and not self._is_ahead(pair):
            for first in range(0, pair.num_keys, FEW_KEYS):
                keys = slice(first, min(first + FEW_KEYS, pair.num_keys))
                seen = pair.by_key().renumbered(first).within(keys.stop - first, pair.num_queries)
                yield (
                    "p2c",
                    matrix.transpose(2, 3)[:, :, keys],
                    pair.pairs.key[:, :, keys] * pair.pairs.scale,
                    keys,
                    seen,
                )

    def _add_product_gradients(
        self, name: str, grads: Tensor, vectors: Tensor, diagonals: Diagonals, total: Tensor, scale: float
    ) -> None:
        """Add the gradients of a table and of scaled vectors, given those (H, B, n, diagonals) of their products."""
        grads = grads.to(vectors.dtype).flatten(1, 2)
        rows = self._rows_of(name, diagonals).to(vectors.dtype)
        grad_vectors = torch.bmm(grads, rows).unflatten(1, vectors.shape[::2]).transpose(0, 1)
        total.add_(grad_vectors[:, :, : total.size(2)].to(total.dtype), alpha=scale)
        if name in self.table_sums:
            grad_rows = torch.bmm(grads.transpose(1, 2), _by_head(vectors))
            diagonals.add_rows(self.table_sums[name], grad_rows)


@dataclass(frozen=True)
class ProductsOfBlocks:
    """Both products for neighbouring query blocks of a row and their slices of keys, which begin equally far ahead."""

    c2p: Tensor | None  # (H, diagonals, D) the table's rows; None without
    p2c: Tensor | None  # the same of its table, from the last diagonal to the first

    @classmethod
    def of(cls, term: DisentangledPosition, seen: Diagonals) -> ProductsOfBlocks:
        """For the ``seen`` diagonals, counted from the query and the key at place 0."""
        # no stride near a power of two, as in _KeyProducts
        wider = replace(seen, highest=seen.highest + (17 - len(seen)) % 32)
        c2p, p2c = (None if table is None else wider.rows_of(table) for table in (term.c2p, term.p2c))
        return cls(c2p, None if p2c is None else p2c.flip(1))

    def scores(self, query: Tensor, key: Tensor, width: int, scale: float) -> Tensor:
        """The scores (H, count, size, width) of blocks; where the band shows no pair, those of other pairs.

        Args:
            query: (H, count, size, D).
            key: (H, (count − 1)·size + width, D), the first keys of neighbouring blocks ``size`` apart.
            width: keys of a block.
            scale: of all scores.
        """
        heads, count, size, _ = query.shape
        parts = []
        if self.c2p is not None:
            x = torch.bmm(query.flatten(1, 2) * scale, self.c2p.transpose(1, 2))
            row = x.stride(1)
            parts.append(x.as_strided((heads, count, size, width), (x.stride(0), size * row, row - 1, 1)))
        if self.p2c is not None:
            x = torch.bmm(key * scale, self.p2c.transpose(1, 2))
            row = x.stride(1)
            parts.append(x.as_strided((heads, count, size, width), (x.stride(0), size * row, 1, row - 1), row - 1))
        out = query.new_empty(heads, count, size, width)
        return torch.add(*parts, out=out) if len(parts) == 2 else out.copy_(parts[0])


def _by_head(x: Tensor) -> Tensor:
    """(B, H, n, D) as (H, B·n, D), because the rows of a batch share the tables."""
    return x.transpose(0, 1).flatten(1, 2)


def _products(vectors: Tensor, rows: Tensor) -> Tensor:
    """Products of vectors (B, H, n, D) with rows of a table (H, w, D): (H, B, n, w)."""
    products = torch.bmm(_by_head(vectors), rows.to(vectors.dtype).transpose(1, 2))
    return products.unflatten(1, vectors.shape[::2])
