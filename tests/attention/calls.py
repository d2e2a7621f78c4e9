"""Calls of the operator for the tests: random tensors, outputs and gradients, and comparison with the reference."""

import torch

from fairseq_poolingformer.attention import Pooling, Window, band_attention

ON_CPU = ["block", "reference"]  # the others have tests of their own in backends/
FAST = [name for name in ON_CPU if name != "reference"]


def tensors(batch, heads, queries, keys, head_dim, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, heads, n, head_dim) for n in (queries, keys, keys)]
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes]


def outputs_and_gradients(inputs, extra=(), **arguments):
    generator = torch.Generator().manual_seed(99)
    out = band_attention(*inputs, **arguments)
    lse = ()
    if arguments.get("return_lse"):
        out, *lse = out
    outs = [out, *(x.where(x.isfinite(), 0.0) for x in lse)]
    grads = [torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x) for x in outs]
    return out, *lse, *torch.autograd.grad(outs, [*inputs, *extra], grads)


def assert_equals_reference(inputs, backend, extra=(), tolerance=1e-12, **arguments):
    expected = outputs_and_gradients(inputs, extra, backend="reference", **arguments)
    actual = outputs_and_gradients(inputs, extra, backend=backend, **arguments)
    names = [
        "out",
        *["lse"] * arguments.get("return_lse", False),
        "query",
        "key",
        "value",
        *map(str, range(len(extra))),
    ]
    for name, a, e in zip(names, actual, expected, strict=True):
        torch.testing.assert_close(a, e, atol=tolerance, rtol=0, msg=lambda m, name=name: f"{name}: {m}")


def right_padding(lengths, size):
    return torch.arange(size) >= torch.tensor(lengths)[:, None]


def random_arguments(rng, batch, heads, keys):
    """Of a call: any of what the operator takes besides tensors and score terms."""
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
