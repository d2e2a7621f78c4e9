"""Activations and dropout masks that the backward pass recomputes: the same numbers, less memory."""

import pytest
import torch
from fairseq.modules import gelu
from torch import nn

from fairseq_poolingformer.training.recompute import SeededDropout, activated_linear
from tests.attention.calls import assert_same


def saved_bytes(run):
    sizes = {}

    def pack(x):
        sizes[x.data_ptr()] = x.numel() * x.element_size()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = run()
    return out, sum(sizes.values())


def example(dtype=torch.float64):
    torch.manual_seed(0)
    linear = nn.Linear(24, 8).to(dtype)
    hidden = torch.randn(5, 3, 24, dtype=dtype, requires_grad=True)
    return linear, hidden


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_activated_linear_has_the_bits_of_fairseqs_gelu(dtype):
    """Which computes in float32; the backward pass calls its derivative."""
    linear, hidden = example(dtype)
    inputs = [hidden, linear.weight, linear.bias]
    outputs = linear(gelu(hidden)), activated_linear(hidden, gelu, linear)
    grads = [torch.autograd.grad((out.float() ** 2).sum(), inputs) for out in outputs]
    torch.testing.assert_close(*grads, atol=0, rtol=0)
    (grad,) = torch.autograd.grad(activated_linear(hidden.detach(), gelu, linear).sum(), linear.bias)
    torch.testing.assert_close(grad, torch.full_like(grad, 15))


@pytest.mark.parametrize("activation", [nn.functional.gelu, torch.relu, torch.tanh])
def test_activated_linear_gives_the_plain_numbers(activation):
    linear, hidden = example()
    inputs = [hidden, linear.weight, linear.bias]
    expected, plain = saved_bytes(lambda: linear(activation(hidden)))
    actual, lean = saved_bytes(lambda: activated_linear(hidden, activation, linear))
    assert_same(actual, expected, inputs, tolerance=1e-13)
    assert lean <= plain
    if activation is nn.functional.gelu:
        assert plain - lean == hidden.numel() * hidden.element_size()


def test_activated_linear_under_autocast():
    linear, hidden = example(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        projected = nn.Linear(24, 24)(hidden)
        expected, actual = linear(torch.relu(projected)), activated_linear(projected, torch.relu, linear)
    assert actual.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(actual, expected)
    inputs = [hidden, linear.weight, linear.bias]
    grads = [torch.autograd.grad(out.sum(), inputs, retain_graph=True) for out in (actual, expected)]
    assert {grad.dtype for grad in grads[0]} == {torch.float32}
    torch.testing.assert_close(*grads, atol=0.02, rtol=0.02)


def test_seeded_dropout_uses_one_mask_in_both_passes_and_keeps_nothing():
    dropout, x = SeededDropout(0.3).train(), torch.randn(50, 40, requires_grad=True)
    out, size = saved_bytes(lambda: dropout(x))
    assert size == 0
    (grad,) = torch.autograd.grad(out, x, torch.ones_like(out))
    torch.testing.assert_close(out, x * grad)
    torch.testing.assert_close(grad.unique(), torch.tensor([0.0, 1 / 0.7]), atol=1e-4, rtol=0)
    assert (grad == 0).float().mean().item() == pytest.approx(0.3, abs=0.05)


def test_seeded_dropout_leaves_evaluation_and_no_dropout_alone():
    x = torch.randn(4)
    assert SeededDropout(0.3).eval()(x) is x
    assert SeededDropout(0.0).train()(x) is x


def test_seeded_dropout_draws_the_same_when_a_layer_is_recomputed():
    dropout, x = SeededDropout(0.5).train(), torch.randn(100, requires_grad=True)
    out = torch.utils.checkpoint.checkpoint(dropout, x, use_reentrant=False)
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(out, x * grad)
