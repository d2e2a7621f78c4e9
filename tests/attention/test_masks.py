"""Masks of a batch and their derived tensors: computed once for all layers, and always of these masks."""

import numpy
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_poolingformer.attention import GlobalTokens, Masks, Pooling, TwoLevelAttention, Window, pool_keys
from tests.attention.calls import right_padding

LEVELS = {"pooled_window": Window(9), "pooling": Pooling(3, 3), "window": Window(2)}


def masks_of_batch():
    return torch.arange(21).expand(2, 21) % 9 == 0, right_padding([21, 13], 21)


def layers(**arguments):
    torch.manual_seed(0)
    return [TwoLevelAttention(8, 2, **LEVELS, **arguments).double() for _ in range(2)]


@pytest.mark.parametrize("options", [{}, {"pool_merge": "softmax"}, {"separate_global_projections": True}])
def test_layers_that_share_masks_compute_them_once_and_give_the_same_numbers(options):
    lower, upper = layers(**options)
    global_mask, padding = masks_of_batch()
    x = torch.randn(2, 21, 8, dtype=torch.float64)
    expected = upper(lower(x, global_mask=global_mask, key_padding_mask=padding), masks=Masks(global_mask, padding))
    masks = Masks(global_mask, padding)
    hidden, count = lower(x, masks=masks), len(masks._derived)
    assert torch.equal(upper(hidden, masks=masks), expected)
    assert len(masks._derived) == count > 0


def test_masks_survive_the_recomputation_of_activations(monkeypatch):
    (layer, _), masks = layers(), Masks(*masks_of_batch())
    x = torch.randn(2, 21, 8, dtype=torch.float64, requires_grad=True)
    out = torch.utils.checkpoint.checkpoint(lambda x: layer(x, masks=masks), x, use_reentrant=False)
    count = len(masks._derived)
    monkeypatch.setattr(torch.Tensor, "nonzero", None)  # what waits for a device
    out.sum().backward()
    assert len(masks._derived) == count


def test_a_plain_mask_is_read_at_each_call():
    """It shares its memory with numpy, which tells torch of no change."""
    mask = numpy.zeros((1, 6), dtype=bool)
    padding, x, pooling = torch.from_numpy(mask), torch.arange(6.0).view(1, 1, 6, 1), Pooling(2, 2)
    before, _ = pool_keys(x, pooling, padding_mask=padding)
    mask[0, 5] = True
    after, _ = pool_keys(x, pooling, padding_mask=padding)
    assert (before.flatten().tolist(), after.flatten().tolist()) == ([0.5, 2.5, 4.5], [0.5, 2.5, 4.0])


def test_later_changes_of_the_callers_masks_have_no_effect():
    (layer, _), (global_mask, padding) = layers(), masks_of_batch()
    x, masks = torch.randn(2, 21, 8, dtype=torch.float64), Masks(global_mask, padding)
    expected = layer(x, masks=Masks(global_mask, padding))
    global_mask.logical_not_(), padding.logical_not_()
    assert torch.equal(layer(x, masks=masks), expected)


@pytest.mark.parametrize("merge", ["sum", "softmax"])
def test_layers_of_other_windows_and_poolings_share_masks(merge):
    x, masks = torch.randn(2, 21, 8, dtype=torch.float64), Masks(*masks_of_batch())
    for change in ({}, {"window": Window(4)}, {"pooling": Pooling(2, 2)}, {"window": Window(1, 5)}):
        layer = TwoLevelAttention(8, 2, **LEVELS | change, pool_merge=merge).double()
        assert torch.equal(layer(x, masks=masks), layer(x, masks=Masks(*masks_of_batch())))


OPTIONS = [{}, {"pool_merge": "softmax"}, {"separate_global_projections": True}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("backend", ["block", "reference"])
def test_masks_made_or_first_used_in_inference_mode_serve_a_training(options, backend):
    (layer, _), x = layers(**options, backend=backend), torch.randn(2, 21, 8, dtype=torch.float64)
    with torch.inference_mode():
        made, global_mask, padding = Masks(*masks_of_batch()), *masks_of_batch()
    used = Masks(global_mask, padding)
    with torch.inference_mode():
        expected = layer(x, masks=used)
    for masks in (made, used):
        out = layer(x.requires_grad_(), masks=masks)
        out.sum().backward()
        assert torch.equal(out, expected)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_fake_mode_leaves_nothing_in_masks(options):
    (layer, _), x = layers(**options, backend="reference"), torch.randn(2, 21, 8, dtype=torch.float64)
    for arguments in ((), (None, masks_of_batch()[1]), masks_of_batch()):
        masks = Masks(*arguments)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            layer(mode.from_tensor(x), masks=masks)
        assert torch.equal(layer(x, masks=masks), layer(x, masks=Masks(*arguments)))


def test_without_globals():
    global_mask, padding = masks_of_batch()
    masks = Masks(GlobalTokens(global_mask), padding)
    assert masks.without_globals.global_keys is None
    assert torch.equal(masks.without_globals.padding, padding)
    assert masks.without_globals is masks.without_globals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"masks": Masks(), "key_padding_mask": torch.zeros(1, 4).bool()}, "leave global_mask and key_padding_mask"),
        ({"masks": torch.zeros(1, 4).bool()}, "masks must be a Masks or None, got Tensor"),
        ({"key_padding_mask": [True]}, "key_padding_mask must be a Tensor or None, got list"),
        ({"global_mask": [True]}, "global_mask must be a Tensor or a GlobalTokens, got list"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        layers()[0](torch.zeros(1, 4, 8).double(), **arguments)
