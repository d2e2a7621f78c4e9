"""Tensors of any strides have the results of contiguous ones, also at lengths at which no block is filled up."""

import pytest
import torch

from fairseq_poolingformer.attention import DisentangledPosition, Pooling, Window, pool_keys
from tests.attention.calls import outputs_and_gradients

LENGTH = 320  # the first blocks lie, with all keys that they see to the right, within the sequence


def _within_nan(x, before, after, steps):
    sizes = [b + n * step + a for n, b, a, step in zip(x.shape, before, after, steps, strict=True)]
    slices = tuple(slice(b, b + n * step, step) for n, b, step in zip(x.shape, before, steps, strict=True))
    whole = torch.full(sizes, torch.nan, dtype=x.dtype)
    whole[slices] = x
    return whole[slices]


LAYOUTS = {
    "channels before tokens": lambda x: x.transpose(-2, -1).contiguous().transpose(-2, -1),
    "channels first": lambda x: x.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0),
    "tokens first": lambda x: x.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3),
    "every other channel": lambda x: _within_nan(x, (0, 0, 0, 0), (0, 0, 0, 0), (1, 1, 1, 2)),
    "every other of the rest": lambda x: _within_nan(x, (0, 0, 0, 0), (0, 0, 0, 0), (2, 2, 2, 1)),
    "at an offset": lambda x: _within_nan(x, (1, 0, 3, 1), (0, 1, 0, 4), (1, 1, 1, 1)),
    "expanded channels": lambda x: x[..., :1].expand(x.shape),
    "expanded tokens": lambda x: x[:, :, :1].expand(x.shape),
    "expanded heads": lambda x: x[:, :1].expand(x.shape),
    "expanded batch": lambda x: x[:1].expand(x.shape),
    "overlapping vectors": lambda x: x.as_strided(x.shape, (*x.stride()[:2], 1, 1)),
}
WINDOW = {"window": Window(0, 32)}
GLOBAL = {"global_mask": torch.arange(LENGTH).expand(2, -1) % 300 == 7}
BUCKET = {"global_bucket": 9}
CALLS = {
    "window": ("block", lambda tables: WINDOW),
    "pooled": ("block", lambda tables: {**WINDOW, "pooling": Pooling(2, 1)}),
    "terms": ("block", lambda tables: {**WINDOW, **GLOBAL, "score_terms": [DisentangledPosition(*tables, **BUCKET)]}),
    "full": ("sdpa", lambda tables: {"window": Window.unlimited()}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("call", CALLS)
def test_outputs_and_gradients(call, layout):
    """In every dtype beside the reference in float64: all numbers are small multiples of 1/4, exact in 16 bits."""
    generator = torch.Generator().manual_seed(1)
    backend, arguments = CALLS[call]
    shapes = [*[(2, 2, LENGTH, 8)] * 3, *[(1, 2, 128, 8)] * (4 if call == "terms" else 0)]
    numbers = [torch.randint(-6, 7, shape, generator=generator) / 4 for shape in shapes]

    def results(dtype, backend):
        laid = [LAYOUTS[layout](x.to(dtype)).detach() for x in numbers]
        if backend == "reference":
            laid = [x.clone(memory_format=torch.contiguous_format) for x in laid]
        laid = [x.requires_grad_() for x in laid]
        inputs, tables = laid[:3], laid[3:]
        return outputs_and_gradients(inputs, tables, backend=backend, **arguments([x[0] for x in tables]))

    expected = results(torch.float64, "reference")
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for actual, e in zip(results(dtype, backend), expected, strict=True):
            error = (actual.double() - e).abs().max() / e.abs().max().clamp(min=1.0)
            assert error < 60 * torch.finfo(dtype).eps, dtype


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["max", "ldconv"])
def test_pooling(layout, kind):
    x = LAYOUTS[layout](torch.randn(2, 2, 40, 6, dtype=torch.float64)).detach().requires_grad_()
    weight = None if kind == "max" else torch.randn(3, 12, dtype=torch.float64)
    results = []
    for tokens in (x, x.contiguous()):
        out, _ = pool_keys(tokens, Pooling(3, 2), kind=kind, weight=weight)
        results.append((out, *torch.autograd.grad(out.square().sum(), x)))
    torch.testing.assert_close(*results, atol=1e-12, rtol=0)
