"""The reference by hand, and against loops over tokens and pools."""

import math

import pytest
import torch

from fairseq_poolingformer.attention import Pooling, Window, band_attention


def test_reference_by_hand():
    """Four tokens, window 1, scale log 2: weights are powers of two that can be read off."""
    q = torch.ones(1, 1, 4, 1, dtype=torch.float64)
    k = torch.tensor([0.0, 1.0, 2.0, 0.0], dtype=torch.float64).view(1, 1, 4, 1)
    v = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64).view(1, 1, 4, 1)
    arguments = {"window": Window(1), "scale": math.log(2), "backend": "reference"}
    out = band_attention(q, k, v, **arguments).flatten()
    expected = [(1 + 2 * 2) / 3, (1 + 2 * 2 + 4 * 3) / 7, (2 * 2 + 4 * 3 + 4) / 7, (4 * 3 + 4) / 5]
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64))

    everyone_sees_token_3 = torch.tensor([[False, False, False, True]])
    out = band_attention(q, k, v, global_mask=everyone_sees_token_3, **arguments).flatten()
    expected = [(1 + 4 + 4) / 4, (1 + 4 + 12 + 4) / 8, (4 + 12 + 4) / 7, (1 + 4 + 12 + 4) / 8]
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64))

    out = band_attention(q, k, v, key_padding_mask=everyone_sees_token_3, **arguments).flatten()
    expected = [(1 + 4) / 3, (1 + 4 + 12) / 7, (4 + 12) / 6, 3.0]
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64))


def test_reference_pooled_by_hand():
    """Six tokens pooled in threes two apart: centres 1, 3, 5; with w2 = 1 the last query sees one pool."""
    q = torch.zeros(1, 1, 6, 1, dtype=torch.float64)
    v = torch.tensor([2.0, 4.0, 8.0], dtype=torch.float64).view(1, 1, 3, 1)
    out = band_attention(q, v, v, window=Window(1), pooling=Pooling(3, 2), backend="reference").flatten()
    torch.testing.assert_close(out, torch.tensor([2.0, 2.0, 3.0, 4.0, 6.0, 8.0], dtype=torch.float64))


@pytest.mark.parametrize("backend", ["reference", "block"])
def test_float16_scores_beyond_its_range(backend):
    """Scaled scores of 80,000 and gradients in float16, whose largest number is 65,504."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.full((1, 1, 6, 64), 100.0), torch.full((1, 1, 6, 64), 100.0)
    k[0, 0, ::2] = 99.0
    inputs = [x.half().requires_grad_() for x in (q, k, torch.randn(1, 1, 6, 64, generator=generator))]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    actual = band_attention(*inputs, window=Window(2), backend=backend)
    expected = band_attention(*exact, window=Window(2), backend="reference")
    torch.testing.assert_close(actual.double(), expected, atol=2e-3, rtol=0)
    grads = torch.autograd.grad(actual.sum(), inputs)
    assert all(grad.isfinite().all() for grad in grads)
