"""A learned score for each head and distance, pair by pair."""

import pytest
import torch

from fairseq_poolingformer.attention import RelativePositionBias
from fairseq_poolingformer.attention.call import Pairs


def naive(table, distance):
    """``table[h, clamp(i − j, −k, k) + k]``, one pair after another."""
    k = table.size(1) // 2
    rows = [[table[:, max(-k, min(k, d)) + k] for d in row] for row in distance.tolist()]
    return torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)


@pytest.mark.parametrize("columns", [1, 3, 9, 41])
@pytest.mark.parametrize(
    "pairs",
    [
        Pairs(range(6), range(4), query_offset=2),  # by diagonals
        Pairs(range(1), range(9)),
        Pairs(range(9), range(1)),
        Pairs(range(0, 12, 3), range(1, 16, 3), query_offset=-4),
        Pairs(range(7), range(5), key_stride=2, key_offset=-3),  # pools: no diagonals of one distance
    ],
)
def test_scores_and_their_gradients(columns, pairs):
    table = torch.randn(2, columns, dtype=torch.float64, requires_grad=True)
    scores = RelativePositionBias(table).scores(pairs)
    expected = naive(table, pairs.distance(table.device))
    assert torch.equal(scores, expected)
    direction = torch.randn(expected.shape, dtype=torch.float64)
    gradients = [torch.autograd.grad(x, table, direction)[0] for x in (scores, expected)]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=0)


def test_pairs_that_differ_from_row_to_row():
    table, pairs = torch.randn(2, 7), Pairs(range(3), torch.tensor([[0, 9], [4, 0]]), query_offset=1)
    scores = RelativePositionBias(table).scores(pairs)
    assert scores.shape == (2, 2, 3, 2)
    for row, distance in enumerate(pairs.distance(table.device)):
        assert torch.equal(scores[row], naive(table, distance))


@pytest.mark.parametrize("shape", [(2, 4), (7,), (1, 2, 3)])
def test_a_table_without_a_middle_column_is_refused(shape):
    with pytest.raises(ValueError, match=r"table must be \(H, 2k \+ 1\)"):
        RelativePositionBias(torch.zeros(shape))
