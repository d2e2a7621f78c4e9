"""torch.compile: the operator leaves the graph, and modules around it give the same numbers as without."""

import subprocess
import sys

import pytest
import torch

from fairseq_poolingformer.attention import GlobalTokens, Pooling, TwoLevelAttention, Window, band_attention, pool_keys
from tests.attention.calls import ON_CPU, right_padding, tensors


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


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("masks", [False, True])
def test_the_operator(backend, masks):
    query, key, value = tensors(2, 2, 21, 21, 4)
    global_mask, padding = layer_inputs()[1:] if masks else (None, None)

    def call(query, key, value):
        level_one = band_attention(
            2 * query, key, value, window=Window(3), global_mask=global_mask, key_padding_mask=padding, backend=backend
        )
        pooling = Pooling(3, 2)
        keys, hidden = pool_keys(key, pooling, padding_mask=padding)
        values, _ = pool_keys(value, pooling, kind="max", padding_mask=padding)
        arguments = {"window": Window(7), "pooling": pooling, "key_padding_mask": hidden, "backend": backend}
        return level_one.tanh() + band_attention(query, keys, values, **arguments)

    results = []
    for run in (call, torch.compile(call, backend="aot_eager")):
        out = run(query, key, value)
        results.append((out, *torch.autograd.grad(out.square().sum(), (query, key, value))))
    for compiled, plain in zip(*reversed(results), strict=True):
        torch.testing.assert_close(compiled, plain, atol=1e-12, rtol=0)


@pytest.mark.full
@pytest.mark.parametrize(("separate", "shared"), [(False, True), (True, False)])
def test_a_layer_in_training_and_inference(separate, shared):
    x, global_mask, padding = layer_inputs()
    torch.manual_seed(0)
    layer = TwoLevelAttention(
        8,
        2,
        window=Window(3),
        pooled_window=Window(7),
        pooling=Pooling(3, 2),
        separate_global_projections=separate,
        dropout=0.3,
    ).double()
    compiled = torch.compile(layer, backend="aot_eager")
    if shared:
        global_mask = GlobalTokens(global_mask)
    inputs = [x, *layer.parameters()]
    results = []
    for module in (layer, compiled):
        torch.manual_seed(2)
        out = module(x, global_mask=global_mask, key_padding_mask=padding)
        results.append((out, *torch.autograd.grad(out.square().sum(), inputs)))
    for a, b in zip(*reversed(results), strict=True):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=0)
    layer.eval()
    with torch.no_grad():
        masks = {"global_mask": global_mask, "key_padding_mask": padding} if shared else {}
        torch.testing.assert_close(compiled(x, **masks), layer(x, **masks), atol=1e-12, rtol=0)


def test_the_compiler_is_not_imported_where_nothing_is_compiled():
    check = (
        "import sys, torch; from fairseq_poolingformer.attention import Window, band_attention\n"
        "band_attention(*torch.zeros(3, 1, 1, 4, 4), window=Window(1))\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
