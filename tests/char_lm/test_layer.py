"""A layer's view of its keys: how many, how far, and what it keeps for the next block."""

import pytest
import torch

from fairseq_poolingformer.attention import Window
from fairseq_poolingformer.char_lm.layer import CausalAttention, CausalLayer, FeedForward, View


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


def layer(pre_norm):
    attention = CausalAttention(8, 2, dropout=0.0, backend=None)
    feed_forward = FeedForward(8, 12, activation="relu", gated=True, dropout=0.0)
    settings = {"embed_dim": 8, "pre_norm": pre_norm, "dropout": 0.0, "positions": None}
    return CausalLayer(attention, feed_forward, **settings).double().eval()


@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("keep_projected", [False, True])
@torch.no_grad()
def test_blocks_with_kept_memory_are_one_text(pre_norm, keep_projected):
    """Three blocks, whose memories are as long as the farthest key that is seen."""
    module, x = layer(pre_norm), torch.randn(17, 3, 8, dtype=torch.float64)
    positions = torch.randn(6, 4, dtype=torch.float64)  # distances 0 … 5
    whole, _ = module(x, None, positions, View(Window(5, 0), reach=5))
    view, memory, parts = View(Window(5, 0), reach=5, keep=5, keep_projected=keep_projected), None, []
    for block in x.split([4, 6, 7]):
        part, memory = module(block, memory, positions, view)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts), whole, atol=1e-12, rtol=0)
    assert memory.shape == (5, 3, 16 if keep_projected else 8)
    assert memory.untyped_storage().nbytes() == memory.numel() * 8, "a copy, not a part of the block"


def test_what_is_kept_has_no_gradient_and_is_no_longer_than_asked():
    module, positions = layer(False), torch.randn(6, 4, dtype=torch.float64)
    x = torch.randn(7, 1, 8, dtype=torch.float64, requires_grad=True)
    out, memory = module(x, None, positions, View(Window(5, 0), reach=5, keep=3))
    assert out.requires_grad
    assert not memory.requires_grad
    assert torch.equal(memory, x[-3:])
    assert module(x, None, positions, View(Window(5, 0), reach=5))[1] is None
