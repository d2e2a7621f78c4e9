"""Diagonals entry by entry: which row of a table each has, and where its products lie in the matrix."""

import pytest
import torch

from fairseq_poolingformer.attention.backends.block.lanes import Lane
from fairseq_poolingformer.attention.backends.block.terms import BlockPair, Diagonals
from fairseq_poolingformer.attention.call import Pairs
from fairseq_poolingformer.attention.patterns import Band

# some with distances beyond both ends of a table of 2·3 rows, and with every sign and size of slope
CASES = [Diagonals(-4, 6, 1, 1), Diagonals(-2, 3, 5, -1), Diagonals(-5, 5, 2, -3), Diagonals(1, 4, -9, 2)]
HEADS, BATCH, ROWS, COLUMNS = 2, 3, 5, 7


def leaf(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()


def numbers(diagonals):
    return range(diagonals.lowest, diagonals.highest + 1)


def row_of(diagonals, number, farthest):
    """By the definitions of ``distance`` and ``slope``, clamped as DeBERTa does."""
    distance = diagonals.distance + diagonals.slope * number
    return max(-farthest, min(farthest - 1, distance)) + farthest


@pytest.mark.parametrize("diagonals", CASES)
@pytest.mark.parametrize("farthest", [1, 3, 20])
def test_rows_and_their_gradients(diagonals, farthest):
    table, grads = leaf(HEADS, 2 * farthest, 4), torch.randn(HEADS, len(diagonals), 4, dtype=torch.float64)
    rows = diagonals.rows_of(table)
    expected = torch.stack([table[:, row_of(diagonals, number, farthest)] for number in numbers(diagonals)], dim=1)
    assert torch.equal(rows, expected)
    total = torch.ones_like(table)  # gradients are added
    diagonals.add_rows(total, grads)
    torch.testing.assert_close(total, 1 + torch.autograd.grad(expected, table, grads)[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("diagonals", CASES)
@pytest.mark.parametrize("by", [-3, 0, 4])
def test_renumbered_diagonals_keep_their_rows(diagonals, by):
    """As in a matrix without its first rows, whose entry (r, c) was (r + by, c)."""
    renumbered, table = diagonals.renumbered(by), leaf(HEADS, 40, 4)
    assert list(numbers(renumbered)) == [number + by for number in numbers(diagonals)]
    assert torch.equal(renumbered.rows_of(table), diagonals.rows_of(table))


@pytest.mark.parametrize("lowest", [-20, -5, -4, 0, 6, 7, 20])
@pytest.mark.parametrize("width", [0, 3, 40])
def test_within_leaves_the_diagonals_that_a_matrix_has(lowest, width):
    diagonals = Diagonals(lowest, lowest + width, 3, -2)
    found = diagonals.within(ROWS, COLUMNS)
    there = [number for number in numbers(diagonals) if 1 - ROWS <= number <= COLUMNS - 1]
    if there:
        assert list(numbers(found)) == there
    assert len(found) >= 1
    assert (found.distance, found.slope) == (3, -2)


@pytest.mark.parametrize(("lowest", "highest"), [(-4, 6), (-1, 2), (2, 5), (-4, -2), (0, 0), (-6, 9)])
def test_products_are_laid_on_a_matrix_and_taken_from_one(lowest, highest):
    diagonals = Diagonals(lowest, highest, 0, 1)
    products = leaf(HEADS, BATCH, ROWS, len(diagonals)).detach()
    columns, laid = diagonals.laid_on(products, COLUMNS)
    matrix = torch.randn(BATCH, HEADS, ROWS, COLUMNS, dtype=torch.float64)
    taken = diagonals.taken_from(matrix)
    assert taken.shape == products.shape
    for row in range(ROWS):
        for number in numbers(diagonals):
            column, place = row + number, number - lowest
            if 0 <= column < COLUMNS:
                assert columns.start <= column < columns.stop
                assert torch.equal(laid[:, :, row, column - columns.start], products[:, :, row, place].transpose(0, 1))
                assert torch.equal(taken[:, :, row, place], matrix[:, :, row, column].transpose(0, 1))
            else:
                assert (taken[:, :, row, place] == 0).all()


def block_pair(band, queries, keys, first_query, first_key):
    """Five queries and seven keys of a group and a lane whose indices are the two ranges."""
    taken = queries[first_query : first_query + 5], keys[first_key : first_key + 7]
    x = torch.zeros(1, 1, 40, 2)
    pairs = Pairs(*taken, query_offset=11, query=x[:, :, :5], key=x[:, :, :7])
    return BlockPair(pairs, Lane(x, x, keys, band=band), first_query, first_key)


@pytest.mark.parametrize("band", [Band(-3, 2), Band(-9, 0), Band(1, 4), None])
@pytest.mark.parametrize(("queries", "keys"), [(range(40), range(40)), (range(1, 120, 3), range(2, 120, 3))])
@pytest.mark.parametrize(("first_query", "first_key"), [(0, 0), (10, 6), (3, 9)])
def test_diagonals_that_the_band_shows_and_their_distances(band, queries, keys, first_query, first_key):
    pair = block_pair(band, queries, keys, first_query, first_key)
    distance = pair.pairs.distance(torch.device("cpu"))
    by_query, by_key = pair.by_query(), pair.by_key()
    assert (pair.num_queries, pair.num_keys) == (5, 7)
    for row in range(5):
        for column in range(7):
            # places in the group and in the lane, not in the call
            ahead = first_key + column - first_query - row
            seen = band is None or band.lowest <= ahead <= band.highest
            assert (by_query.lowest <= column - row <= by_query.highest) == seen
            assert (by_key.lowest <= row - column <= by_key.highest) == seen
            assert by_query.distance + by_query.slope * (column - row) == distance[row, column]
            assert by_key.distance + by_key.slope * (row - column) == distance[row, column]
