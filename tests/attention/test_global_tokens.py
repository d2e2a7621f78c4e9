"""Global tokens of a batch, looked up once."""

import pytest
import torch

from fairseq_poolingformer.attention import GlobalTokens, Window, band_attention
from fairseq_poolingformer.attention.global_tokens import FirstTokens
from tests.attention.calls import ON_CPU, outputs_and_gradients, right_padding, tensors


@pytest.mark.parametrize("backend", ON_CPU)
def test_global_tokens_are_looked_up_once_for_many_calls(backend, monkeypatch):
    inputs, arguments = tensors(2, 2, 40, 40, 4), {"window": Window(3), "backend": backend}
    global_mask = torch.rand(2, 40, generator=torch.Generator().manual_seed(0)) < 0.1
    expected = outputs_and_gradients(inputs, global_mask=global_mask, **arguments)
    tokens = GlobalTokens(global_mask)
    band_attention(*inputs, global_mask=tokens, **arguments)
    monkeypatch.setattr(torch.Tensor, "nonzero", None)  # what waits for a device
    actual = outputs_and_gradients(inputs, global_mask=tokens, **arguments)
    torch.testing.assert_close(actual, expected, atol=0, rtol=0)


@pytest.mark.parametrize("backend", ON_CPU)
def test_first_tokens_are_what_their_mask_says(backend):
    """Slots without a look at the mask: rows with fewer global tokens, and with global tokens that are padding."""
    inputs = tensors(4, 2, 40, 40, 4)
    global_mask = torch.arange(40) < torch.tensor([3, 1, 0, 3])[:, None]
    padding = right_padding([40, 25, 40, 40], 40)
    padding[3, :2] = True  # padding on the left
    arguments = {"window": Window(3), "key_padding_mask": padding, "backend": backend}
    expected = outputs_and_gradients(inputs, global_mask=global_mask, **arguments)
    actual = outputs_and_gradients(inputs, global_mask=FirstTokens(global_mask, 3), **arguments)
    torch.testing.assert_close(actual, expected, atol=1e-12, rtol=0)
    x, values = torch.randn(4, 2, 40, 4), torch.randn(4, 2, 3, 4)
    results = [
        (tokens.replaced(x, values), tokens.gather(x), tokens.hidden(padding))
        for tokens in (GlobalTokens(global_mask), FirstTokens(global_mask, 3))
    ]
    torch.testing.assert_close(*results)


def test_slots_by_hand():
    mask = torch.tensor([[True, False, False, True, True], [False, False, True, False, False], [False] * 5])
    tokens = GlobalTokens(mask)
    assert (tokens.num_rows, tokens.num_slots) == (3, 3)
    assert tokens.index.tolist() == [[0, 3, 4], [2, 0, 0], [0, 0, 0]]
    assert tokens.unused.tolist() == [[False] * 3, [False, True, True], [True] * 3]
    padding = torch.arange(5).expand(3, 5) >= torch.tensor([[4], [5], [0]])
    assert tokens.hidden(padding).tolist() == [[False, False, True], [False, True, True], [True] * 3]
    x = torch.arange(1, 16.0).view(3, 1, 5, 1)
    assert tokens.gather(x).flatten(1).tolist() == [[1, 4, 5], [8, 0, 0], [0, 0, 0]]
    values = torch.tensor([[10.0, 20, 30], [40, 50, 60], [70, 80, 90]]).view(3, 1, 3, 1)
    changed = [x[:2, 0, :, 0].tolist(), tokens.replaced(x, values)[:2, 0, :, 0].tolist()]
    assert changed == [[[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]], [[10, 2, 3, 20, 30], [6, 7, 40, 9, 10]]]
    tokens.add(x, values)
    assert x.flatten(1).tolist() == [[11, 2, 3, 24, 35], [6, 7, 48, 9, 10], [11, 12, 13, 14, 15]]
    assert GlobalTokens(torch.zeros(0, 5, dtype=torch.bool)).num_slots == 0
    assert GlobalTokens.of(None) is None
    assert GlobalTokens.of(tokens) is tokens


def test_a_mask_that_its_owner_changes_later_has_no_effect():
    mask = torch.arange(6)[None] < 2
    tokens = GlobalTokens.of(mask)
    mask.fill_(True)
    assert tokens.index.tolist() == [[0, 1]]
    assert tokens.mask.tolist() == [[True, True, False, False, False, False]]
