"""Pairs of queries and keys as score terms read them: their distances, and one pair for each diagonal."""

import pytest
import torch

from fairseq_poolingformer.attention.call import Pairs

CPU = torch.device("cpu")


def test_distances_by_hand():
    """Queries 3 and 5 of a block that begins at token 10; keys that are pools, 4 tokens apart from token -2 on."""
    pairs = Pairs(range(3, 7, 2), range(1, 4), query_offset=10, key_offset=-2, key_stride=4)
    assert pairs.distance(CPU).tolist() == [[13 - 2, 13 - 6, 13 - 10], [15 - 2, 15 - 6, 15 - 10]]
    global_keys = torch.tensor([[0, 9], [4, 0]])
    assert Pairs(range(2), global_keys).distance(CPU).tolist() == [[[0, -9], [1, -8]], [[-4, 0], [-3, 1]]]


@pytest.mark.parametrize(
    ("queries", "keys", "stride"),
    [
        *((range(5), range(3, 10), 1), (range(1, 13, 3), range(2, 20, 3), 1), (range(8), range(1), 1)),
        (range(1, 10, 3), range(4), 3),  # a class of query-aligned pools, as far apart as the queries
    ],
)
def test_all_pairs_of_a_diagonal_have_its_distance(queries, keys, stride):
    pairs = Pairs(queries, keys, query_offset=7, key_offset=-1, key_stride=stride, scale=0.5, with_global=True)
    diagonals = pairs.by_diagonal()
    distance, of_diagonal = pairs.distance(CPU), diagonals.distance(CPU)
    assert of_diagonal.shape == (1, len(queries) + len(keys) - 1)
    for row in range(len(queries)):
        for column in range(len(keys)):
            assert distance[row, column] == of_diagonal[0, len(queries) - 1 - row + column]
    assert (diagonals.scale, diagonals.with_global) == (0.5, True)


@pytest.mark.parametrize(
    "pairs",
    [
        Pairs(range(4), range(4), key_stride=2),
        Pairs(range(0, 8, 2), range(4)),
        Pairs(torch.arange(4)[None], range(4)),
        Pairs(range(4), torch.arange(4)[None]),
    ],
)
def test_pairs_without_diagonals_of_one_distance_have_none(pairs):
    assert pairs.by_diagonal() is None
