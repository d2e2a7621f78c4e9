"""Diagonals of a matrix (queries × keys): one row of a table of positions serves each of them.

The products of the matrix's row vectors with these table rows are a matrix (rows × diagonals). Shifted by one more
place in every row, which is a view with another stride, they lie on the matrix itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Diagonals:
    """Neighbouring diagonals of a matrix; entry (r, c) lies on number c − r.

    Args:
        lowest, highest: numbers of the first and the last diagonal.
        distance: position of the query minus position of the key on diagonal 0.
        slope: how much the distance grows from one diagonal to the next.
    """

    lowest: int
    highest: int
    distance: int
    slope: int

    def __len__(self) -> int:
        return self.highest + 1 - self.lowest

    def within(self, num_rows: int, num_columns: int) -> Diagonals:
        """The diagonals that a matrix of this size has, at least one."""
        lowest = min(max(self.lowest, 1 - num_rows), num_columns - 1)
        return replace(self, lowest=lowest, highest=max(lowest, min(self.highest, num_columns - 1)))

    def renumbered(self, by: int) -> Diagonals:
        """The same diagonals where their numbers are greater by ``by``, as in a matrix without its first rows."""
        distance = self.distance - self.slope * by
        return replace(self, lowest=self.lowest + by, highest=self.highest + by, distance=distance)

    def _distances(self) -> range:
        first = self.distance + self.slope * self.lowest
        return range(first, first + self.slope * len(self), self.slope)

    def rows_of(self, table: Tensor) -> Tensor:
        """The row of each diagonal in a table (H, 2k, D): (H, diagonals, D)."""
        distances, farthest = self._distances(), table.size(1) // 2
        row = torch.arange(distances.start, distances.stop, distances.step, device=table.device) + farthest
        return table.index_select(1, row.clamp_(0, 2 * farthest - 1))

    def add_rows(self, total: Tensor, grads: Tensor) -> None:
        """Add the gradients (H, diagonals, D) of :meth:`rows_of` to ``total`` (H, 2k, D)."""
        distances, farthest = self._distances(), total.size(1) // 2
        if distances.step < 0:
            distances, grads = distances[::-1], grads.flip(1)
        # Distances −k … k − 1 have a row each; those below and beyond were clamped to the outermost rows. So: how many
        # distances lie below −k, and how many below k.
        first, stop = (
            min(len(distances), max(0, -((distances.start - end) // distances.step))) for end in (-farthest, farthest)
        )
        if first < stop:
            row = distances[first] + farthest
            total[:, row : distances[stop - 1] + farthest + 1 : distances.step] += grads[:, first:stop]
        if first:
            total[:, 0] += grads[:, :first].sum(1)
        if stop < len(distances):
            total[:, -1] += grads[:, stop:].sum(1)

    def laid_on(self, products: Tensor, num_columns: int) -> tuple[slice, Tensor]:
        """Products (H, B, rows, diagonals) at their places in a matrix of ``num_columns``.

        Returns:
            The columns that have products, and a view (B, H, rows, those columns). Off the diagonals the view shows
            products of other entries.
        """
        heads, batch, num_rows, _ = products.shape
        begin, stop = max(0, self.lowest), min(num_columns, num_rows + self.highest)
        strides = products.stride()
        # entry (r, c) is product (r, c − r − lowest), at r·stride + (c − r − lowest) = r·(stride − 1) + c − lowest
        view = products.as_strided(
            (batch, heads, num_rows, max(0, stop - begin)),
            (strides[1], strides[0], strides[2] - 1, 1),
            products.storage_offset() + begin - self.lowest,
        )
        return slice(begin, max(begin, stop)), view

    def taken_from(self, x: Tensor) -> Tensor:
        """The diagonals of a matrix (B, H, rows, columns): (H, B, rows, diagonals), zero outside the matrix."""
        batch, heads, num_rows, num_columns = x.shape
        left, right = max(0, -self.lowest), max(0, num_rows + self.highest - num_columns)
        x = F.pad(x, (left, right)) if left or right else x
        strides = x.stride()
        # number i of row r is entry (r, r + lowest + i), which the zeros on the left move: one row on is one column on
        return x.as_strided(
            (heads, batch, num_rows, len(self)),
            (strides[1], strides[0], strides[2] + strides[3], strides[3]),
            x.storage_offset() + (self.lowest + left) * strides[3],
        )
