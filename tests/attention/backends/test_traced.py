"""The operator as torch.export sees it, beside the reference; tests/huggingface/test_tools.py exports whole models."""

import pytest
import torch

from fairseq_poolingformer.attention import Pooling, RelativePositionBias, Window, functional, pool_keys
from tests.attention.calls import outputs_and_gradients, right_padding, tensors


@pytest.fixture
def assert_traced_equals_reference(monkeypatch):
    def check(inputs, **arguments):
        expected = outputs_and_gradients(inputs, backend="reference", **arguments)
        with monkeypatch.context() as patched:
            patched.setattr(functional, "is_exporting", lambda: True)
            actual = outputs_and_gradients(inputs, backend="reference", **arguments)
        torch.testing.assert_close(actual, expected, atol=1e-12, rtol=0)

    return check


@pytest.mark.parametrize("length", [1, 64, 130])
@pytest.mark.parametrize("window", [Window(5), Window(3, 70), Window(100, 0), Window.unlimited()])
@pytest.mark.parametrize("masked", [False, True])
def test_windows(assert_traced_equals_reference, length, window, masked):
    masks = {}
    if masked:
        global_mask = torch.zeros(3, length, dtype=torch.bool)
        global_mask[0, [0, length // 2]] = global_mask[1, -1] = True
        masks = {"global_mask": global_mask, "key_padding_mask": right_padding([length, length // 3, 1], length)}
    assert_traced_equals_reference(tensors(3, 2, length, length, 2), window=window, **masks)


@pytest.mark.parametrize("pooling", [Pooling(5, 4), Pooling(2, 1), Pooling(3, 5), Pooling(3, 2, "query")])
@pytest.mark.parametrize("length", [3, 131])
def test_pools(assert_traced_equals_reference, pooling, length):
    """A stride that does not divide 64, and pools that each query has for itself, are dense."""
    query, key, value = tensors(2, 2, length, length, 4)
    padding = right_padding([length, length // 2], length)
    (key, hidden), (value, _) = (pool_keys(x.detach(), pooling, padding_mask=padding) for x in (key, value))
    inputs = [query, key.requires_grad_(), value.requires_grad_()]
    assert_traced_equals_reference(inputs, window=Window(20), pooling=pooling, key_padding_mask=hidden)


@pytest.mark.parametrize(
    "arguments",
    [
        {"window": Window(3, dilation=(1, 2))},
        {"window": Window(9), "query_offset": 5},
        {"window": Window(9), "score_terms": [RelativePositionBias(torch.randn(2, 9).double())]},
    ],
)
def test_calls_that_are_no_plain_band(assert_traced_equals_reference, arguments):
    assert_traced_equals_reference(tensors(2, 2, 70, 70, 4), **arguments)
