"""Direct launches of compiled kernels beside Triton's own, ``kernel[grid]``."""

import pytest
import torch

from tests.attention.backends.triton.test_backend import DEVICE, INTERPRETED, runs_kernels

triton = pytest.importorskip("triton")

from fairseq_poolingformer.attention import Pooling, Window, band_attention  # noqa: E402
from fairseq_poolingformer.attention.backends.triton import forward as kernels  # noqa: E402
from fairseq_poolingformer.attention.backends.triton import launcher  # noqa: E402
from fairseq_poolingformer.attention.backends.triton.arguments import TileShape  # noqa: E402

SHAPE = TileShape(16, 16, 4, 2)


def combine_arguments(rows=100, dim=64, splits=3, offset=0, dtype=torch.float32, second=None):
    """Those of the kernel ``combine``, which sums splits: (splits, B, H, rows, D) to (B, H, rows, D)."""
    partial = torch.randn(splits * 2 * rows * dim + 4, device=DEVICE)[offset : offset - 4 or None]
    partial = partial[: splits * 2 * rows * dim].view(splits, 1, 2, rows, dim)
    out = torch.empty(1, 2, rows, dim, device=DEVICE, dtype=dtype)
    line = out, second, *out.stride()[:3], None, 0, 0, 0, None, 0, 0
    return partial, None, None, rows, *line, 2, splits, dim, dim, 16, False


@pytest.mark.skipif(INTERPRETED, reason="interpreted kernels have no variants")
@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"rows": 101}, False),  # strides, which Triton compiles for where they are multiples of 16
        ({"splits": 4}, True),  # a run-time number
        ({"offset": 1}, False),  # alignment
        ({"dtype": torch.float16}, False),
        ({"dim": 32}, False),
        ({"second": torch.zeros(1, device=DEVICE)}, False),
    ],
)
def test_variants_are_told_apart(change, same):
    variants = [launcher.variant_of(kernels.combine, SHAPE, combine_arguments(**x)) for x in ({}, change)]
    assert (variants[0] == variants[1]) == same
    assert variants[0] != launcher.variant_of(kernels.combine, SHAPE._replace(num_warps=8), combine_arguments())


@pytest.mark.skipif(INTERPRETED, reason="interpreted kernels have no variants")
def test_numbers_of_64_bits_are_another_variant():
    names = [parameter.name for parameter in kernels.forward.params]
    arguments = [torch.zeros(1, device=DEVICE), *[0] * (len(names) - 1)]
    variants = []
    for number in (1, 7, 2**40):
        arguments[names.index("num_keys")] = number
        variants.append(launcher.variant_of(kernels.forward, SHAPE, tuple(arguments)))
    assert variants[0] == variants[1] != variants[2]


@pytest.mark.skipif(INTERPRETED, reason="interpreted kernels have no variants")
def test_the_second_launch_of_a_variant_is_direct(monkeypatch):
    """Of a fake kernel: the compiled one gets the grid in three dimensions and all arguments."""
    calls = []

    class Compiled:
        def __getitem__(self, grid):
            return lambda *arguments: calls.append(("direct", grid, arguments))

    def dispatch(kernel, grid):
        def run(*arguments, **options):
            calls.append(("dispatched", grid, arguments))
            return Compiled()

        return run

    monkeypatch.setattr(triton.JITFunction, "__getitem__", dispatch)
    monkeypatch.setattr(launcher, "CompiledKernel", Compiled)
    monkeypatch.setattr(launcher, "_compiled", {})
    arguments = combine_arguments()
    for _ in range(3):
        launcher.launch(kernels.combine, (5,), SHAPE, *arguments)
    launcher.launch(kernels.combine, (0,), SHAPE, *arguments)  # nothing to do
    launcher.launch(kernels.combine, (5,), SHAPE, *combine_arguments(dtype=torch.float16))
    assert [(how, grid) for how, grid, _ in calls] == [
        ("dispatched", (5,)),
        ("direct", (5, 1, 1)),
        ("direct", (5, 1, 1)),
        ("dispatched", (5,)),
    ]
    assert all(x is y for x, y in zip(calls[1][2], arguments, strict=True))


@runs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("pooling", [None, Pooling(4, 4)])
def test_direct_launches_equal_dispatched_ones(dtype, pooling, monkeypatch):
    """Bit for bit, forward and backward; a GPU's, as interpreted kernels are always dispatched."""
    keys = 80 if pooling is None else pooling.num_pools(80)
    inputs = [torch.randn(2, 2, n, 16, device=DEVICE, dtype=dtype).requires_grad_() for n in (80, keys, keys)]
    mask = None if pooling else torch.arange(80, device=DEVICE).expand(2, -1) < 1

    def passes():
        out = band_attention(*inputs, window=Window(30), pooling=pooling, global_mask=mask, backend="triton")
        return out, *torch.autograd.grad(out.float().square().sum(), inputs)

    monkeypatch.setattr(launcher, "_compiled", {})
    dispatched, direct = passes(), passes()
    for a, b in zip(dispatched, direct, strict=True):
        assert torch.equal(a, b)
