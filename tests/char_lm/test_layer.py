"""A layer's view of its keys: how many, how far, and what it keeps for the next block."""

import torch

from fairseq_poolingformer.attention import Window
from fairseq_poolingformer.char_lm.layer import View


def test_a_view_with_a_reach_by_hand():
    """Four positions back: distances 0 … 4, which are five, where so many keys exist."""
    view = View(Window(4, 0), reach=4)
    assert [view.num_distances(keys) for keys in (1, 4, 5, 6, 100)] == [1, 4, 5, 5, 5]
    assert [view.window_over(keys).left for keys in (1, 3, 5, 100)] == [0, 2, 4, 4]
    assert view.num_keys(9, 3) == 9
    zeros = View(Window(4, 0), reach=4, zero_keys=True)
    assert [zeros.num_keys(positions, 3) for positions in (3, 6, 7, 20)] == [7, 7, 7, 20]


def test_spans_are_added_to_the_scores_of_distances():
    alone = torch.arange(8.0).view(2, 4)
    assert View(Window(3, 0), reach=3).bias(None, 4) is None
    assert torch.equal(View(Window(3, 0), reach=3).bias(alone, 4), alone)
    view = View(Window(3, 0), reach=3, span=torch.tensor([0.0, 1.0]), ramp=2, nearest=1)
    mask = torch.tensor([[0, 1, 0.5, 0], [0, 1, 1, 0.5]]).log()  # a byte does not see itself
    assert torch.equal(view.bias(None, 4).exp() > 0.01, mask.exp() > 0.01)
    torch.testing.assert_close(view.bias(alone, 4).exp(), (alone + mask).exp(), atol=1e-6, rtol=1e-6)
