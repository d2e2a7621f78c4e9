"""Scores of content and position (``DisentangledPosition``) for one tile of the Triton kernels.

A tile's rows and columns are queries and keys, or keys and queries. Each of its entries takes one row of the tables in
``positions``, a :class:`~.terms.Positions`. In a window the row depends on the entry's diagonal: the vectors are
multiplied with one table row for each diagonal, and the products are skewed into place. Pairs with a global token may
take any row, usually a few neighbouring ones: the vectors are multiplied with PIECE rows at a time, from the first row
that an entry takes to the last.
"""

import triton
import triton.language as tl

from fairseq_poolingformer.attention.backends.triton import arguments
from fairseq_poolingformer.attention.backends.triton.tiles import load_rows, row_places

PIECE = tl.constexpr(arguments.SMALL_BLOCK)  # rows of a coarse table that are multiplied at a time
BEYOND = tl.constexpr(arguments.HIDDEN // 2)  # positions farther from 0 belong to empty slots


@triton.jit
def _diagonal_rows(
    x_position, y_position, spacing, positions,
    BY_KEY: tl.constexpr, BLOCK_X: tl.constexpr, BLOCK_Y: tl.constexpr,
):  # fmt: skip
    """The table row of each diagonal; entry (r, c) is on number r − c + BLOCK_Y − 1."""
    diagonal = tl.arange(0, 2 * (BLOCK_X if BLOCK_X > BLOCK_Y else BLOCK_Y))
    distance = tl.min(x_position, 0) - tl.max(y_position, 0) + spacing * diagonal
    half = positions.num_rows // 2
    return tl.minimum(tl.maximum(-distance if BY_KEY else distance, -half), half - 1) + half


@triton.jit
def _last(position, spacing):
    """BLOCK − 1 of a block's positions, computed so that the compiler does not know it is a constant.

    It would otherwise keep the places to gather from, the same ones for every tile, in registers and spill others.
    """
    return (tl.max(position, 0) - tl.min(position, 0)) // spacing


@triton.jit
def _coarse_rows(x_position, y_position, positions, BY_KEY: tl.constexpr):
    """The table row of each entry, −1 in empty slots, and the range of rows that entries take."""
    x_position, y_position = x_position.to(tl.int32), y_position.to(tl.int32)  # global tokens are numbered in 64 bits
    distance = x_position[:, None] - y_position[None, :]
    if BY_KEY:
        distance = -distance
    sign = tl.where(distance < 0, -1, 0)
    row = ((distance ^ sign) // positions.bucket) ^ sign  # rounded down: ~x is −x − 1
    half = positions.num_rows // 2
    row = tl.minimum(tl.maximum(row, -half), half - 1) + half
    x_exists = (x_position > -BEYOND) & (x_position < BEYOND)
    y_exists = (y_position > -BEYOND) & (y_position < BEYOND)
    row = tl.where(x_exists[:, None] & y_exists[None, :], row, -1)
    first = tl.min(tl.where(row < 0, 2 * half, row))
    return row, first, tl.max(row) + 1


@triton.jit
def _table_rows(table, head, rows, count, x, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows of a head's (count, HEAD_DIM) table in the dtype of ``x``."""
    return load_rows(table + head * count * HEAD_DIM, rows, count, HEAD_DIM, HEAD_DIM, BLOCK_D).to(x.dtype)


@triton.jit
def _products(
    product, x, y, positions, head, rows, index,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``product`` plus the rows' and columns' products with the table rows ``rows[index]``."""
    if positions.of_rows is not None:
        table = _table_rows(positions.of_rows, head, rows, positions.num_rows, x, HEAD_DIM, BLOCK_D)
        product += tl.gather(tl.dot(x, tl.trans(table), input_precision=PRECISION), index, 1)
    if positions.of_columns is not None:
        table = _table_rows(positions.of_columns, head, rows, positions.num_rows, y, HEAD_DIM, BLOCK_D)
        product += tl.gather(tl.dot(table, tl.trans(y), input_precision=PRECISION), index, 0)
    return product


@triton.jit
def add_position_products(
    product, x, y, x_position, y_position, spacing, positions, head,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_X: tl.constexpr, BLOCK_Y: tl.constexpr,
    COARSE: tl.constexpr, BY_KEY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``product`` of the rows' vectors ``x`` (BLOCK_X, BLOCK_D) and the columns' ``y``, plus those with positions.

    With COARSE each pair has a global token; else neighbours are ``spacing`` tokens apart. With BY_KEY rows are keys.
    """
    if positions.num_rows is not None:
        if COARSE:
            row, first, stop = _coarse_rows(x_position, y_position, positions, BY_KEY)
            for start in range(first, stop, PIECE):
                inside = (row >= start) & (row < start + PIECE)
                rows, index = start + tl.arange(0, PIECE), tl.where(inside, row - start, 0)
                more = _products(product, x, y, positions, head, rows, index, HEAD_DIM, BLOCK_D, PRECISION)
                product = tl.where(inside, more, product)
        else:
            rows = _diagonal_rows(x_position, y_position, spacing, positions, BY_KEY, BLOCK_X, BLOCK_Y)
            index = tl.arange(0, BLOCK_X)[:, None] - tl.arange(0, BLOCK_Y)[None, :] + _last(y_position, spacing)
            product = _products(product, x, y, positions, head, rows, index, HEAD_DIM, BLOCK_D, PRECISION)
    return product


@triton.jit
def _product_gradients(
    acc, grads, x, scale, positions, head, rows,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Given gradients (BLOCK_X, rows) of the rows' products, add to ``acc``, that of ``x``, and to the table's."""
    if positions.of_rows is not None:
        grads = grads.to(x.dtype)
        count = positions.num_rows
        table = _table_rows(positions.of_rows, head, rows, count, x, HEAD_DIM, BLOCK_D)
        acc = tl.dot(grads, table, acc, input_precision=PRECISION)
        if positions.grad is not None:
            grad_rows = tl.dot(tl.trans(grads), x, input_precision=PRECISION) * scale
            table_grad = positions.grad + head * count * HEAD_DIM
            places, exist = row_places(table_grad, rows, count, HEAD_DIM, HEAD_DIM, BLOCK_D)
            tl.atomic_add(places, grad_rows, mask=exist & (grad_rows != 0.0), sem="relaxed")
    return acc


@triton.jit
def add_position_gradients(
    acc, grad_scores, x, x_position, y_position, num_columns, spacing, scale, positions, head,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_X: tl.constexpr, BLOCK_Y: tl.constexpr,
    COARSE: tl.constexpr, BY_KEY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add to ``acc``, the gradient of the rows' vectors ``x`` before it is scaled, and to their table's gradient.

    The kernel whose tiles have the columns as rows adds the columns' gradients. ``scale`` is α, ``num_columns`` the
    number of the tile's columns that exist.
    """
    if positions.num_rows is not None:
        if COARSE:
            row, first, stop = _coarse_rows(x_position, y_position, positions, BY_KEY)
            for start in range(first, stop, PIECE):
                rows = start + tl.arange(0, PIECE)
                grads = tl.zeros([BLOCK_X, PIECE], tl.float32)
                for number in range(0, num_columns):  # neighbours may take the same row: nothing to be gathered
                    column = tl.zeros([BLOCK_X, 1], tl.int32) + number
                    taken = tl.gather(row, column, 1) == rows[None, :]
                    grads += tl.where(taken, tl.gather(grad_scores, column, 1), 0.0)
                acc = _product_gradients(acc, grads, x, scale, positions, head, rows, HEAD_DIM, BLOCK_D, PRECISION)
        else:
            rows = _diagonal_rows(x_position, y_position, spacing, positions, BY_KEY, BLOCK_X, BLOCK_Y)
            diagonal = tl.arange(0, 2 * (BLOCK_X if BLOCK_X > BLOCK_Y else BLOCK_Y))
            column = tl.arange(0, BLOCK_X)[:, None] + _last(y_position, spacing) - diagonal[None, :]
            inside = (column >= 0) & (column < BLOCK_Y)
            grads = tl.where(inside, tl.gather(grad_scores, tl.where(inside, column, 0), 1), 0.0)
            acc = _product_gradients(acc, grads, x, scale, positions, head, rows, HEAD_DIM, BLOCK_D, PRECISION)
    return acc
