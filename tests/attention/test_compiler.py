"""torch.compile: whole graphs with the operator, and the same numbers as without."""

import subprocess
import sys

import pytest
import torch

from fairseq_poolingformer.attention import (
    Masks,
    Pooling,
    RelativePositionBias,
    TwoLevelAttention,
    Window,
    band_attention,
    pool_keys,
)
from tests.attention.calls import right_padding, tensors


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def layer_inputs():
    torch.manual_seed(1)
    x = torch.randn(2, 21, 8, dtype=torch.float64, requires_grad=True)
    global_mask = torch.arange(21).expand(2, 21) % 9 == 0
    return x, global_mask, right_padding([21, 13], 21)


@pytest.mark.parametrize(("backend", "masks"), [("block", True), ("reference", False)])
def test_the_operator(backend, masks):
    query, key, value = tensors(2, 2, 21, 21, 4)
    global_mask, padding = layer_inputs()[1:] if masks else (None, None)

    def call(query, key, value):
        arguments = {"global_mask": global_mask, "key_padding_mask": padding, "backend": backend, "return_lse": True}
        level_one, lse = band_attention(2 * query, key, value, window=Window(3), **arguments)
        pooling = Pooling(3, 2)
        keys, hidden = pool_keys(key, pooling, padding_mask=padding)
        values, _ = pool_keys(value, pooling, kind="max", padding_mask=padding)
        arguments = {"window": Window(7), "pooling": pooling, "key_padding_mask": hidden, "backend": backend}
        return level_one.tanh() + lse.sin()[..., None] + band_attention(query, keys, values, **arguments)

    results = []
    for run in (call, torch.compile(call, backend="aot_eager", fullgraph=True)):
        out = run(query, key, value)
        results.append((out, *torch.autograd.grad(out.square().sum(), (query, key, value))))
    for compiled, plain in zip(*reversed(results), strict=True):
        torch.testing.assert_close(compiled, plain, atol=1e-12, rtol=0)


TWO_LEVELS = {"pooled_window": Window(7), "pooling": Pooling(3, 2)}
LED = {"separate_global_projections": True}


@pytest.mark.parametrize(
    ("settings", "shared"),
    [
        (TWO_LEVELS, False),
        pytest.param(LED, False, marks=pytest.mark.full),
        pytest.param({**TWO_LEVELS, "pooling": Pooling(2, 2), "pool_merge": "softmax"}, True, marks=pytest.mark.full),
        pytest.param({**TWO_LEVELS, **LED, "pool_type": "max"}, True, marks=pytest.mark.full),
    ],
)
@pytest.mark.filterwarnings("error:Dynamo")  # such as of a cached function
def test_a_layer_in_training_and_inference(settings, shared):
    """In one graph; with plain masks, whose global tokens nobody counts, and with shared ones."""
    x, global_mask, padding = layer_inputs()
    torch.manual_seed(0)
    layer = TwoLevelAttention(8, 2, window=Window(3), dropout=0.3, **settings).double()
    masks = {"global_mask": global_mask, "key_padding_mask": padding}
    if shared:
        masks = {"masks": Masks(global_mask, padding)}
    elif settings.get("separate_global_projections"):
        layer.dropout = 0.0  # whose seeds fall on other pairs there
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    inputs = [x, *layer.parameters()]
    results = []
    for module in (layer, compiled):
        torch.manual_seed(2)
        out = module(x, **masks)
        results.append((out, *torch.autograd.grad(out.square().sum(), inputs)))
    for a, b in zip(*reversed(results), strict=True):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=0)
    layer.eval()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, **masks), layer(x, **masks), atol=1e-12, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernels of pools need a GPU")
@pytest.mark.parametrize("pool_type", ["ldconv", "mean"])
def test_pools_of_kernels_stay_in_the_graph(pool_type):
    layer = TwoLevelAttention(32, 2, window=Window(3), pool_type=pool_type, **TWO_LEVELS).cuda()
    x, masks = torch.randn(2, 90, 32, device="cuda"), Masks(None, right_padding([90, 50], 90).cuda())
    results = []
    for module in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        out = module(x, masks=masks)
        results.append((out, *torch.autograd.grad(out.square().sum(), [*layer.parameters()])))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-4)


@pytest.mark.full
def test_score_terms_break_the_graph():
    query, key, value = tensors(2, 2, 21, 21, 4)
    table = torch.randn(2, 9, dtype=torch.float64, requires_grad=True)

    def call(query, key, value, table):
        term = RelativePositionBias(table)
        return band_attention(2 * query, key, value, window=Window(3), score_terms=(term,)).tanh()

    results = [f(query, key, value, table) for f in (call, torch.compile(call, backend="aot_eager"))]
    torch.testing.assert_close(*results, atol=1e-12, rtol=0)
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(call, backend="aot_eager", fullgraph=True)(query, key, value, table)


def test_the_compiler_is_not_imported_where_nothing_is_compiled():
    check = (
        "import sys, torch; from fairseq_poolingformer.attention import Window, band_attention\n"
        "band_attention(*torch.zeros(3, 1, 1, 4, 4), window=Window(1))\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
