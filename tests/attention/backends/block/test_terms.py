"""Block pairs as score terms see them: the diagonals that the band shows, with their distances."""

import pytest
import torch

from fairseq_poolingformer.attention.backends.block.lanes import Lane
from fairseq_poolingformer.attention.backends.block.terms import BlockPair
from fairseq_poolingformer.attention.call import Pairs
from fairseq_poolingformer.attention.patterns import Band


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
