"""Calls of the operator for the tests: random tensors, outputs and gradients, and comparison with the reference."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_poolingformer.attention import Pooling, Window, band_attention

ON_CPU = ["block", "reference"]  # the others have tests of their own in backends/
FAST = [name for name in ON_CPU if name != "reference"]


def tensors(batch, heads, queries, keys, head_dim, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, heads, n, head_dim) for n in (queries, keys, keys)]
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes]


def outputs_and_gradients(inputs, extra=(), **arguments):
    generator, out = torch.Generator().manual_seed(99), band_attention(*inputs, **arguments)
    lse = ()
    if arguments.get("return_lse"):
        out, *lse = out
    outs = [out, *(x.where(x.isfinite(), 0.0) for x in lse)]
    grads = [torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x) for x in outs]
    return out, *lse, *torch.autograd.grad(outs, [*inputs, *extra], grads)


def assert_equals_reference(inputs, backend, extra=(), tolerance=1e-12, **arguments):
    expected = outputs_and_gradients(inputs, extra, backend="reference", **arguments)
    actual = outputs_and_gradients(inputs, extra, backend=backend, **arguments)
    names = ["out", *["lse"] * arguments.get("return_lse", False), "query", "key", "value", *range(len(extra))]
    pairs = (dict(zip(names, results, strict=True)) for results in (actual, expected))
    torch.testing.assert_close(*pairs, atol=tolerance, rtol=0)


def with_gradients(out, inputs):
    """A tensor, and its gradients in a random direction."""
    direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    return out, *torch.autograd.grad(out, inputs, direction.to(out))


def assert_same(actual, expected, inputs, tolerance=1e-12):
    """Two tensors are equal, and so are their gradients."""
    pairs = (with_gradients(out, inputs) for out in (actual, expected))
    torch.testing.assert_close(*pairs, atol=tolerance, rtol=0)


def right_padding(lengths, size):
    return torch.arange(size) >= torch.tensor(lengths)[:, None]


def random_arguments(rng, batch, heads, keys):
    """Settings of a call: any of what the operator takes besides tensors and score terms."""
    window = Window(rng.choice([0, 1, 7, 40]), rng.choice([None, 0, 3, 25]))
    arguments = {"window": window, "query_offset": rng.choice([0, 0, -5, 11])}
    if rng.random() < 0.4:
        arguments["pooling"] = Pooling(rng.randint(1, 9), rng.randint(1, 6), rng.choice(["grid", "query"]))
    else:
        dilation = rng.choice([1, 1, 2, tuple(rng.randint(1, 3) for _ in range(heads))])
        arguments["window"] = Window(window.left, window.right, dilation)
        if rng.random() < 0.6:
            arguments["global_mask"] = torch.rand(batch, keys) < rng.choice([0.02, 0.3])
    if rng.random() < 0.6:
        arguments["key_padding_mask"] = torch.rand(batch, keys) < rng.choice([0.2, 0.9])
    return arguments


def assert_error_at_most_twice_the_references(run, inputs, dtype):
    """Check ``run(backend, inputs)`` in a small dtype against the reference in float64, each result in that dtype."""
    exact = run("reference", [x.detach().double().requires_grad_() for x in inputs])
    for result, plain, expected in zip(run("block", inputs), run("reference", inputs), exact, strict=True):
        assert result.dtype == dtype
        assert (result - expected).abs().max() <= 2 * (plain - expected).abs().max() + 1e-7


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that an operation makes memory for."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.untyped_storage().nbytes() // x.element_size())
        return out
