"""The pooling kernels against PyTorch in float64: on a GPU where there is one, else in Triton's interpreter."""

import pytest
import torch

from fairseq_poolingformer.attention import Masks, Pooling, TwoLevelAttention, Window
from fairseq_poolingformer.attention.backends.triton import backend
from fairseq_poolingformer.attention.pooling import kernels_differ, pool, pool_pair
from tests.attention.backends.triton.test_backend import DEVICE, INTERPRETED, pass_in_the_interpreter, runs_kernels
from tests.attention.test_first_order import assert_first_order


@pytest.mark.full
def test_in_the_interpreter():
    pass_in_the_interpreter(__file__)


def random(*shape, layout=None):
    x = torch.randn(shape, dtype=torch.float64)
    return x if layout is None else x.permute(layout)


def assert_pools_equal(pooling, kind, *, tokens, heads=2, head_dim=24, sets=1, padding=None, sources=2, bias=True):
    """Pools, and the gradients of sources, weights and bias, of kernels in float32 and of PyTorch in float64."""
    torch.manual_seed(0)
    # values are not laid out as keys; one source is read twice
    key = random(tokens, 2, heads, head_dim, layout=(1, 2, 0, 3))
    leaves = [key, *([random(2, heads, tokens, head_dim)] if sources == 2 else [])]
    if "ldconv" in kind:
        leaves.append(random(2, sets * pooling.kernel_size, heads * head_dim) / 4)
        leaves += [random(2, sets * pooling.kernel_size)] if bias else []
    results = []
    for dtype in (torch.float32, torch.float64):
        copies = [x.to(DEVICE, dtype).detach().requires_grad_() for x in leaves]
        pair = copies[0], copies[1 if sources == 2 else 0]
        weight, b = (*copies[sources:], None, None)[:2] if "ldconv" in kind else (None, None)
        masks = Masks(None, None if padding is None else padding.to(DEVICE))
        if dtype == torch.float32:
            assert backend.pools(pair[0], pooling.kernel_size)
            out = pool_pair(*pair, pooling, kind, masks, (weight, b))
        else:
            assert not backend.pools(pair[0], pooling.kernel_size)
            each = ((x[i] if x is not None else None for x in (weight, b)) for i in range(2))
            out = torch.stack([pool(x, pooling, kind, masks, *y) for x, y in zip(pair, each, strict=True)])
        generator = torch.Generator().manual_seed(1)
        grad = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out)
        results.append([out, *torch.autograd.grad(out, copies, grad)])
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual.double(), expected, atol=2e-5 * float(expected.detach().abs().max()), rtol=0)


@runs_kernels
@pytest.mark.parametrize("kind", ["ldconv", "mean-ldconv", "mean"])
@pytest.mark.parametrize(
    ("kernel_size", "stride", "tokens"), [(5, 4, 75), (4, 4, 64), (3, 5, 33), (7, 3, 20), (1, 1, 5), (12, 2, 23)]
)
@pytest.mark.parametrize("padded", [False, True])
def test_equals_pytorch(kind, kernel_size, stride, tokens, padded):
    padding = None
    if padded:
        padding = torch.rand(2, tokens, generator=torch.Generator().manual_seed(0)) < 0.4
        padding[0, -5:], padding[1, 1 : tokens // 2] = True, True
    assert_pools_equal(Pooling(kernel_size, stride), kind, tokens=tokens, padding=padding)


@runs_kernels
@pytest.mark.parametrize("kind", ["ldconv", "mean-ldconv", "mean"])
@pytest.mark.parametrize("change", [{"sources": 1}, {"sets": 2}, {"bias": False}, {"heads": 1, "head_dim": 200}])
def test_one_source_sets_of_weights_no_bias_and_many_channels(kind, change):
    padding = torch.arange(45) >= torch.tensor([45, 30])[:, None]
    assert_pools_equal(Pooling(5, 4), kind, tokens=45, padding=padding, **change)


@runs_kernels
def test_second_derivatives_are_refused():
    def pools(key, value, weight, bias):
        return pool_pair(key, value, Pooling(3, 2), "ldconv", Masks(), (weight, bias))

    shapes = [(1, 2, 9, 8), (1, 2, 9, 8), (2, 3, 16), (2, 3)]
    assert_first_order(pools, [torch.randn(shape, device=DEVICE) for shape in shapes])


@runs_kernels
@pytest.mark.parametrize("kind", ["ldconv", "mean-ldconv", "mean"])
def test_padding_is_never_read(kind):
    padding = (torch.arange(45) >= torch.tensor([45, 30])[:, None]).to(DEVICE)
    x = torch.randn(2, 1, 45, 24, device=DEVICE)
    weight = None if kind == "mean" else torch.randn(2, 5, 24, device=DEVICE)
    results = []
    for fill in (0.0, torch.nan):
        source = x.masked_fill(padding[:, None, :, None], fill).requires_grad_()
        out = pool_pair(source, source, Pooling(5, 4), kind, Masks(None, padding), (weight, None))
        results.append((out, *torch.autograd.grad(out.square().sum(), source)))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


@runs_kernels
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"pool_type": "mean"},
        {"pool_type": "mean-ldconv", "mix": True, "share_weights": True},
        {"bias": False, "batch_first": False},
        {"ldconv_heads": 2},
        {"pool_merge": "softmax", "pooling": Pooling(4, 4)},
    ],
)
@pytest.mark.parametrize("padded", [False, True])
def test_layers_equal_those_of_pytorch(change, padded, monkeypatch):
    """Outputs and all gradients of layers in float32, and of layers in float64 by the reference alone."""
    geometry = {"window": Window(3), "pooled_window": Window(20), "pooling": Pooling(5, 4), **change}
    torch.manual_seed(0)
    exact = TwoLevelAttention(16, 2, **geometry, backend="reference").double().to(DEVICE)
    layer = TwoLevelAttention(16, 2, **geometry, backend="reference").to(DEVICE)
    layer.load_state_dict(exact.state_dict())
    x = torch.randn(2, 45, 16, dtype=torch.float64, device=DEVICE)
    x = x if exact.batch_first else x.transpose(0, 1).contiguous()
    padding = torch.arange(45, device=DEVICE) >= torch.tensor([45, 30], device=DEVICE)[:, None] if padded else None
    results, runs = [], []
    apply = backend.pooling.Pools.apply
    monkeypatch.setattr(backend.pooling.Pools, "apply", lambda *inputs: (runs.append(1), apply(*inputs))[1])
    for module in (layer, exact):
        tokens = x.to(module.out_proj.weight.dtype).requires_grad_()
        out = module(tokens, masks=Masks(None, padding))
        grads = torch.autograd.grad(out.sin().sum(), [tokens, *module.parameters()])
        results.append([out, *grads])
    assert len(runs) == (2 if "ldconv_heads" in change else 1)  # for keys and values that are projected each
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(
            actual.double(), expected, atol=2e-5 * max(1.0, float(expected.detach().abs().max())), rtol=0
        )


@runs_kernels
@pytest.mark.parametrize("kind", ["ldconv", "mean-ldconv", "mean"])
def test_the_self_check_passes_and_finds_what_is_broken(kind, monkeypatch):
    place = torch.float32, torch.device(DEVICE), 8, Pooling(3, 2), kind
    assert kernels_differ(*place) is None
    apply = backend.pooling.Pools.apply
    monkeypatch.setattr(backend.pooling.Pools, "apply", lambda *inputs: 1.01 * apply(*inputs))
    assert kernels_differ(*place).startswith("an error of 0.0")


@pytest.mark.skipif(INTERPRETED or DEVICE == "cuda", reason="where the kernels do not run")
def test_cpus_pool_by_pytorch():
    assert not backend.pools(torch.zeros(1, 1, 8, 4), 5)
