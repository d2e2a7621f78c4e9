"""pool_keys against the pool-by-pool twin, by hand, and its gradients."""

import pytest
import torch

from fairseq_poolingformer.attention import POOL_TYPES, Pooling, pool_keys
from fairseq_poolingformer.attention.backends.triton import backend
from fairseq_poolingformer.attention.pooling import has_kernels
from tests.attention.naive import pool, pool_starts

SHAPES = [(5, 4), (4, 4), (3, 5), (1, 1), (2, 1), (6, 2)]


def weight_for(kind, kernel_size, channels, sets=1):
    return torch.randn(sets * kernel_size, channels, dtype=torch.float64) if "ldconv" in kind else None


@pytest.mark.parametrize(("kernel_size", "stride"), SHAPES)
@pytest.mark.parametrize("kind", POOL_TYPES)
@pytest.mark.parametrize("alignment", ["grid", "query"])
@pytest.mark.parametrize("padding", ["none", "right", "holes"])
def test_equals_the_naive_twin(kernel_size, stride, kind, alignment, padding):
    torch.manual_seed(0)
    x, mask = torch.randn(3, 4, 13, 2, dtype=torch.float64), None
    if padding == "right":
        mask = torch.arange(13) >= torch.tensor([13, 6, 1])[:, None]
    elif padding == "holes":
        mask = torch.rand(3, 13) < 0.5
        mask[2] = True
    weight = weight_for(kind, kernel_size, 8, sets=2)
    pooled, empty = pool_keys(x, Pooling(kernel_size, stride, alignment), kind=kind, padding_mask=mask, weight=weight)
    starts = pool_starts(13, kernel_size=kernel_size, stride=stride, alignment=alignment)
    expected, expected_empty = pool(x, starts, kernel_size=kernel_size, kind=kind, padding=mask, weight=weight)
    torch.testing.assert_close(pooled, expected, atol=1e-12, rtol=0)
    assert empty is None if mask is None else torch.equal(empty, expected_empty)


WEIGHT = torch.tensor([[2.0], [1.0], [1.0]]).log().double()  # 1/2, 1/4, 1/4 at a centre of 1


@pytest.mark.parametrize(
    ("pooling", "options", "tokens", "num_padded", "expected"),
    [
        (Pooling(3, 2), {}, [1, 2, 3, 4, 5, 6], 1, [2, 4, 5]),  # (1,2,3), (3,4,5), (5) without the padded 6
        (Pooling(3, 2, "query"), {}, [1, 2, 4, 8], 0, [1, 1.5, 7 / 3, 14 / 3, 6, 8]),  # clipped at both ends
        (Pooling(3, 3), {"kind": "ldconv", "weight": WEIGHT}, [4, 1, 8], 0, [4 / 2 + 1 / 4 + 8 / 4]),
    ],
)
def test_pools_by_hand(pooling, options, tokens, num_padded, expected):
    x = torch.tensor(tokens).double().view(1, 1, -1, 1)
    padding = torch.arange(len(tokens))[None] >= len(tokens) - num_padded if num_padded else None
    pooled, empty = pool_keys(x, pooling, padding_mask=padding, **options)
    torch.testing.assert_close(pooled.flatten(), torch.tensor(expected).double())
    assert empty is None if padding is None else not empty.any()


@pytest.mark.parametrize("kind", POOL_TYPES)
@pytest.mark.parametrize("alignment", ["grid", "query"])
def test_gradients(kind, alignment):
    torch.manual_seed(0)
    x = torch.randn(2, 2, 9, 2, dtype=torch.float64, requires_grad=True)
    weight, mask = weight_for(kind, 3, 4), torch.arange(9) >= torch.tensor([9, 5])[:, None]
    if weight is not None:
        weight.requires_grad_()

    def run(x, weight):
        return pool_keys(x, Pooling(3, 2, alignment), kind=kind, padding_mask=mask, weight=weight)[0]

    assert torch.autograd.gradcheck(run, (x, weight))


def test_kernels_pool_on_the_grid_alone(monkeypatch):
    monkeypatch.setattr(backend, "runs_on", lambda x: True)
    x = torch.zeros(1, 1, 9, 4)
    for kind in POOL_TYPES:
        assert has_kernels(x, Pooling(5, 4), kind) == (kind != "max")
        assert not has_kernels(x, Pooling(5, 4, "query"), kind)
        assert not has_kernels(x, Pooling(33, 4), kind)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", POOL_TYPES)
def test_dtype_is_kept_without_nan(kind, dtype):
    weight, x = weight_for(kind, 5, 8), torch.randn(2, 4, 10, 2).to(dtype)
    pooled, _ = pool_keys(x, Pooling(5, 4), kind=kind, padding_mask=torch.ones(2, 10, dtype=torch.bool), weight=weight)
    assert pooled.dtype == dtype
    assert (pooled == 0).all()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"kind": "median"}, "kind"),
        ({"kind": "ldconv"}, "needs weight"),
        ({"kind": "mean", "weight": torch.zeros(5, 8)}, "leave them out"),
        ({"kind": "ldconv", "weight": torch.zeros(5, 8), "bias": torch.zeros(8)}, "bias"),
        ({"kind": "ldconv", "weight": torch.zeros(15, 8)}, "divisor"),
        ({"padding_mask": torch.zeros(2, 10)}, "padding_mask must be .* bool"),
    ],
)
def test_bad_arguments_are_named(arguments, word):
    with pytest.raises(ValueError, match=word):
        pool_keys(torch.randn(2, 4, 10, 2), Pooling(5, 4), **arguments)
