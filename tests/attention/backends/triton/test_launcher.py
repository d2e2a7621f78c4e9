"""Direct launches of compiled kernels beside Triton's own, ``kernel[grid]``."""

from dataclasses import replace

import pytest
import torch

from tests.attention.backends.triton.test_backend import DEVICE, runs_kernels

pytest.importorskip("triton")

from fairseq_poolingformer.attention import Pooling, Window, band_attention
from fairseq_poolingformer.attention.backends.plan import empty_like
from fairseq_poolingformer.attention.backends.triton import backend, launcher, launches
from fairseq_poolingformer.attention.backends.triton.arguments import TileShape, Tokens
from fairseq_poolingformer.attention.call import Call

SHAPE = TileShape(16, 16, 4, 2)


def tensors(rows=100, offset=0, second=None):
    """Arguments of the kernel ``combine``, which sums splits: (3, 1, 2, rows, 64) to (1, 2, rows, 64)."""
    partial = torch.randn(3 * 2 * rows * 64 + 4, device=DEVICE)[offset : offset - 4 or None]
    partial = partial[: 3 * 2 * rows * 64].view(3, 1, 2, rows, 64)
    return partial, None, None, torch.empty(1, 2, rows, 64, device=DEVICE), second, None, None


class Compiled:
    """A compiled kernel that notes its launches."""

    def __init__(self, calls):
        self.calls = calls

    def __getitem__(self, grid):
        return lambda *arguments: self.calls.append((grid, arguments))


@pytest.fixture
def calls(monkeypatch):
    """The launches, by their grids and arguments, of which Triton's dispatch gives a grid of one dimension."""
    calls = []
    monkeypatch.setattr(launcher, "CompiledKernel", Compiled)
    return calls


def launch_of(calls, grid=(5,)):
    def dispatch(grid):
        return lambda *arguments, **options: calls.append((grid, arguments)) or Compiled(calls)

    return launcher.Launch(
        type("Kernel", (), {"__getitem__": lambda self, grid: dispatch(grid)})(), grid, SHAPE, 7, 0.5
    )


@pytest.mark.parametrize(
    ("change", "direct"),
    [
        ({}, True),
        ({"rows": 101}, True),  # numbers are the launch's own
        ({"offset": 1}, False),  # alignment
        ({"second": torch.zeros(1, device=DEVICE)}, False),
    ],
)
def test_the_second_launch_of_a_variant_is_direct(change, direct, calls):
    """With a fake kernel: the compiled one gets the grid in three dimensions and all arguments."""
    launch, arguments = launch_of(calls), [tensors(), tensors(**change)]
    for x in arguments:
        launch(*x)
    assert [grid for grid, _ in calls] == [(5,), (5, 1, 1) if direct else (5,)]
    for (_, actual), x in zip(calls, arguments, strict=True):
        assert all(a is b for a, b in zip(actual, (*x, 7, 0.5), strict=True))


def test_launches_without_programs_or_with_tuples_of_tensors(calls):
    launch_of(calls, (0,))(*tensors())
    assert not calls
    launch = launch_of(calls)
    for _ in range(2):
        launch(*tensors(), (torch.zeros(1), None))
    assert [grid for grid, _ in calls] == [(5,), (5,)]  # Triton looks at the tuple


def test_every_geometry_has_launches_of_its_own():
    """Each change of a call that changes a kernel's numbers gives other launches; other tensors do not."""

    def of(
        tokens=64, dtype=torch.float32, transposed=False, dropout_p=0.0, scale=None, right=9, mask=None, **arguments
    ):
        query = torch.zeros(1, 2, tokens, 16)
        key = torch.zeros(1, tokens, 2, 16).transpose(1, 2) if transposed else torch.zeros(1, 2, tokens, 16)
        call = Call.of(
            query, key, key, window=Window(9, right), dropout_p=dropout_p, scale=scale, global_mask=mask, **arguments
        )
        call = replace(call, query=query.to(dtype), key=key.to(dtype), value=key.to(dtype))
        plan, *inputs = backend.inputs(call)
        x = launches.Inputs(plan, Tokens.of(plan), *inputs)
        return x.launches(empty_like(inputs[0]), torch.empty(1, 2, tokens))

    place = torch.arange(64)[None]
    changes = [
        *(
            {"dtype": torch.float16},
            {"dtype": torch.bfloat16},
            {"tokens": 65},
            {"transposed": True},
            {"dropout_p": 0.1},
            {"scale": 2.0},
            {"right": 0},
        ),
        *({"mask": place < 1}, {"mask": place < 2}, {"key_padding_mask": place > 60}, {"query_offset": 3}),
        {"pooling": Pooling(2, 1)},
    ]
    assert of() is of()
    assert len({id(of(**x)) for x in ({}, *changes)}) == 1 + len(changes)


def test_float32_products_have_torch_s_precision(monkeypatch):
    """Other launches after a change of it, which 16 bits do not ask for."""
    query = torch.zeros(1, 2, 64, 16)
    for dtype, names in ((torch.float32, ["ieee", "tf32x3", "tf32", "ieee"]), (torch.float16, ["ieee"] * 4)):
        steps = []
        for precision in ("highest", "high", "medium", "highest"):
            monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda precision=precision: precision)
            plan, *inputs = backend.inputs(Call.of(*[query.to(dtype)] * 3, window=Window(9)))
            x = launches.Inputs(plan, Tokens.of(plan), *inputs)
            steps.append(x.launches(empty_like(inputs[0]), torch.empty(1, 2, 64)))
            for step in (*steps[-1].forward, *steps[-1].queries, *steps[-1].keys):
                assert names[len(steps) - 1] in step.launch.numbers
        assert len({id(x) for x in steps}) == len(set(names))


@runs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("pooling", [None, Pooling(4, 4)])
def test_direct_launches_equal_dispatched_ones(dtype, pooling):
    """Bit for bit, forward and backward; a GPU's, as interpreted kernels are always dispatched."""
    keys = 80 if pooling is None else pooling.num_pools(80)
    inputs = [torch.randn(2, 2, n, 16, device=DEVICE, dtype=dtype).requires_grad_() for n in (80, keys, keys)]
    mask = None if pooling else torch.arange(80, device=DEVICE).expand(2, -1) < 1

    def passes():
        out = band_attention(*inputs, window=Window(30), pooling=pooling, global_mask=mask, backend="triton")
        return out, *torch.autograd.grad(out.float().square().sum(), inputs)

    dispatched, direct = passes(), passes()
    for a, b in zip(dispatched, direct, strict=True):
        assert torch.equal(a, b)
