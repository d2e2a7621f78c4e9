"""The operator: the reference by hand and against loops, the block backend against the reference."""

import contextlib
import math
import random

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_poolingformer.attention import (
    BACKENDS,
    GlobalTokens,
    Pooling,
    RelativePositionBias,
    Window,
    band_attention,
    pool_keys,
)
from fairseq_poolingformer.attention.backends.block import lanes
from fairseq_poolingformer.attention.backends.plan import residue_classes
from tests.attention.naive import attend, pool, sees, sees_pool, starts_of_own_pools

ON_CPU = [name for name in BACKENDS if name != "triton"]  # in float64 too; test_triton.py has the same for the other
FAST = [name for name in ON_CPU if name != "reference"]


def tensors(batch, heads, queries, keys, head_dim, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, heads, n, head_dim) for n in (queries, keys, keys)]
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes]


def outputs_and_gradients(inputs, extra=(), **arguments):
    generator = torch.Generator().manual_seed(99)
    out = band_attention(*inputs, **arguments)
    grad = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
    return out, *torch.autograd.grad(out, [*inputs, *extra], grad)


def assert_equals_reference(inputs, backend, extra=(), tolerance=1e-12, **arguments):
    expected = outputs_and_gradients(inputs, extra, backend="reference", **arguments)
    actual = outputs_and_gradients(inputs, extra, backend=backend, **arguments)
    for name, a, e in zip(
        ["out", "query", "key", "value", *map(str, range(len(extra)))], actual, expected, strict=True
    ):
        torch.testing.assert_close(a, e, atol=tolerance, rtol=0, msg=lambda m, name=name: f"{name}: {m}")


@pytest.fixture(params=[32, 3])
def small_blocks(request, monkeypatch):
    """Blocks of a few queries, so that small inputs cross many block edges."""
    if request.param < 32:
        monkeypatch.setattr(lanes, "MIN_BLOCK", request.param)
        monkeypatch.setattr(lanes, "SCORES_PER_BLOCK", 1)
        monkeypatch.setattr(lanes, "MAX_BLOCK", request.param)


def right_padding(lengths, size):
    return torch.arange(size) >= torch.tensor(lengths)[:, None]


def test_reference_by_hand():
    """Four tokens, window 1, scale log 2: weights are powers of two that can be read off."""
    q = torch.ones(1, 1, 4, 1, dtype=torch.float64)
    k = torch.tensor([0.0, 1.0, 2.0, 0.0], dtype=torch.float64).view(1, 1, 4, 1)
    v = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64).view(1, 1, 4, 1)
    arguments = {"window": Window(1), "scale": math.log(2), "backend": "reference"}
    out = band_attention(q, k, v, **arguments).flatten()
    expected = [(1 + 2 * 2) / 3, (1 + 2 * 2 + 4 * 3) / 7, (2 * 2 + 4 * 3 + 4) / 7, (4 * 3 + 4) / 5]
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64))

    everyone_sees_token_3 = torch.tensor([[False, False, False, True]])
    out = band_attention(q, k, v, global_mask=everyone_sees_token_3, **arguments).flatten()
    expected = [(1 + 4 + 4) / 4, (1 + 4 + 12 + 4) / 8, (4 + 12 + 4) / 7, (1 + 4 + 12 + 4) / 8]
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64))

    out = band_attention(q, k, v, key_padding_mask=everyone_sees_token_3, **arguments).flatten()
    expected = [(1 + 4) / 3, (1 + 4 + 12) / 7, (4 + 12) / 6, 3.0]
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64))


def test_reference_pooled_by_hand():
    """Six tokens pooled in threes two apart: centres 1, 3, 5; with w2 = 1 the last query sees one pool."""
    q = torch.zeros(1, 1, 6, 1, dtype=torch.float64)
    v = torch.tensor([2.0, 4.0, 8.0], dtype=torch.float64).view(1, 1, 3, 1)
    out = band_attention(q, v, v, window=Window(1), pooling=Pooling(3, 2), backend="reference").flatten()
    torch.testing.assert_close(out, torch.tensor([2.0, 2.0, 3.0, 4.0, 6.0, 8.0], dtype=torch.float64))


@pytest.mark.parametrize("dilation", [1, 2, (1, 3)])
def test_reference_equals_loops_over_tokens(dilation):
    q, k, v = (x.detach() for x in tensors(2, 2, 5, 9, 3))
    global_mask = torch.zeros(2, 9, dtype=torch.bool)
    global_mask[0, 0] = global_mask[0, 4] = True  # row 1 has none
    padding = right_padding([9, 6], 9)
    table = torch.randn(2, 5, dtype=torch.float64)

    def seen(b, h, t, s):
        i, d = t + 2, dilation if isinstance(dilation, int) else dilation[h]
        through = sees(i, s, left=2, right=1, dilation=d) or global_mask[b, s] or global_mask[b, i]
        return through and not padding[b, s]

    bias = [[[table[h, max(-2, min(2, t + 2 - s)) + 2] for s in range(9)] for t in range(5)] for h in range(2)]
    out = band_attention(
        q,
        k,
        v,
        window=Window(2, 1, dilation),
        global_mask=global_mask,
        key_padding_mask=padding,
        score_terms=[RelativePositionBias(table)],
        query_offset=2,
        scale=0.7,
        backend="reference",
    )
    torch.testing.assert_close(out, attend(q, k, v, seen, 0.7, bias), atol=1e-12, rtol=0)


@pytest.mark.parametrize("alignment", ["grid", "query"])
def test_reference_equals_loops_over_pools(alignment):
    q, k, v = (x.detach() for x in tensors(1, 1, 13, 13, 2))
    pooling = Pooling(3, 2, alignment)
    pooled_keys, _ = pool_keys(k, pooling)
    pooled_values, _ = pool_keys(v, pooling)
    out = band_attention(q, pooled_keys, pooled_values, window=Window(4), pooling=pooling, backend="reference")

    def seen(b, h, t, s):
        return sees_pool(t, s, left=4, right=4, kernel_size=3, stride=2, alignment=alignment)

    torch.testing.assert_close(out, attend(q, pooled_keys, pooled_values, seen, 2**-0.5), atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("kind", ["mean", "max", "ldconv", "mean-ldconv"])
@pytest.mark.parametrize(("kernel_size", "stride", "reach"), [(3, 2, 4), (4, 3, 2), (2, 3, 6), (5, 1, 3)])
@pytest.mark.parametrize("padded", [False, True])
def test_query_alignment_is_equations_6_and_7(backend, kind, kernel_size, stride, reach, padded):
    """Each query cuts its own window into pools, clips them to the sequence, and attends to what they become."""
    q, k, v = tensors(2, 2, 11, 11, 2)
    generator = torch.Generator().manual_seed(5)
    weights = None
    if "ldconv" in kind:
        weights = torch.randn(kernel_size, 4, generator=generator, dtype=torch.float64).requires_grad_()
    padding = right_padding([11, 7], 11) if padded else torch.zeros(2, 11, dtype=torch.bool)
    rows = []
    for i in range(11):
        starts = starts_of_own_pools(i, left=reach, right=reach, kernel_size=kernel_size, stride=stride)
        pooled = {"kernel_size": kernel_size, "kind": kind, "padding": padding, "weight": weights}
        keys, empty = pool(k, starts, **pooled)
        values, _ = pool(v, starts, **pooled)
        seen = lambda b, h, t, s, empty=empty: not empty[b, s]  # noqa: E731
        rows.append(attend(q[:, :, i : i + 1], keys, values, seen, 2**-0.5))
    expected = torch.cat(rows, dim=2)

    pooling = Pooling(kernel_size, stride, "query")
    pooled = {"kind": kind, "padding_mask": padding if padded else None, "weight": weights}
    keys, hidden = pool_keys(k, pooling, **pooled)
    values, _ = pool_keys(v, pooling, **pooled)
    actual = band_attention(
        q, keys, values, window=Window(reach), pooling=pooling, key_padding_mask=hidden, backend=backend
    )
    inputs = [q, k, v] if weights is None else [q, k, v, weights]
    grad = torch.randn(q.shape, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(actual, expected, atol=1e-12, rtol=0)
    for a, e in zip(
        torch.autograd.grad(actual, inputs, grad), torch.autograd.grad(expected, inputs, grad), strict=True
    ):
        torch.testing.assert_close(a, e, atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("length", [1, 5, 33, 97, 200])
@pytest.mark.parametrize(
    "window", [Window(0), Window(4), Window(16, 0), Window(3, 7), Window(500), Window(2, 2, (1, 4))]
)
@pytest.mark.usefixtures("small_blocks")
def test_windows(backend, length, window):
    assert_equals_reference(tensors(2, 2, length, length, 5), backend, window=window)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("alignment", ["grid", "query"])
@pytest.mark.parametrize(("kernel_size", "stride"), [(5, 4), (4, 4), (2, 5), (1, 1), (9, 2)])
@pytest.mark.parametrize("pooled_window", [0, 1, 20, 300])
@pytest.mark.usefixtures("small_blocks")
def test_pooled_windows(backend, alignment, kernel_size, stride, pooled_window):
    pooling = Pooling(kernel_size, stride, alignment)
    inputs = tensors(2, 2, 101, pooling.num_pools(101), 4)
    padding = right_padding([inputs[1].size(2), 3], inputs[1].size(2))
    assert_equals_reference(inputs, backend, window=Window(pooled_window), pooling=pooling, key_padding_mask=padding)


@pytest.mark.parametrize("backend", FAST)
def test_global_tokens_that_are_padding_are_seen_by_nobody(backend):
    global_mask = torch.zeros(2, 40, dtype=torch.bool)
    global_mask[:, 30] = global_mask[0, 3] = True
    padding = right_padding([40, 20], 40)  # the second row's only global token is padding
    arguments = {"window": Window(3), "global_mask": global_mask, "key_padding_mask": padding}
    assert_equals_reference(tensors(2, 2, 40, 40, 4), backend, **arguments)


@pytest.mark.parametrize("backend", ON_CPU)
def test_global_tokens_are_looked_up_once_for_many_calls(backend, monkeypatch):
    inputs = tensors(2, 2, 40, 40, 4)
    global_mask = torch.rand(2, 40, generator=torch.Generator().manual_seed(0)) < 0.1
    expected = outputs_and_gradients(inputs, window=Window(3), global_mask=global_mask, backend=backend)
    tokens = GlobalTokens(global_mask)
    band_attention(*inputs, window=Window(3), global_mask=tokens, backend=backend)
    monkeypatch.setattr(torch.Tensor, "nonzero", None)  # what waits for a device
    for actual, wanted in zip(
        outputs_and_gradients(inputs, window=Window(3), global_mask=tokens, backend=backend), expected, strict=True
    ):
        assert torch.equal(actual, wanted)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("window", [Window(4), Window(6, 0), Window(2, 2, (2, 1, 3))])
@pytest.mark.parametrize("offset", [0, 7, -4])
@pytest.mark.usefixtures("small_blocks")
def test_globals_padding_and_offset(backend, window, offset):
    inputs = tensors(3, 3, 40, 61, 4)
    global_mask = torch.zeros(3, 61, dtype=torch.bool)
    global_mask[0, [0, 9, 10, 60]] = True
    global_mask[1, 30] = True  # row 2 has none; row 1's is padding
    padding = right_padding([61, 25, 1], 61)
    assert_equals_reference(
        inputs, backend, window=window, global_mask=global_mask, key_padding_mask=padding, query_offset=offset
    )


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize(("alignment", "first_start"), [("grid", 0), ("query", -2)])
@torch.no_grad()
def test_a_score_term_is_told_where_pools_start(backend, alignment, first_start):
    q, k, v = tensors(1, 2, 9, 9, 2)
    table = torch.randn(2, 41, dtype=torch.float64)
    pooling = Pooling(3, 2, alignment)
    keys, values = pool_keys(k, pooling)[0], pool_keys(v, pooling)[0]
    stride = pooling.stride if alignment == "grid" else 1
    starts = [first_start + stride * s for s in range(keys.size(2))]
    bias = [[[table[h, t + 1 - start + 20] for start in starts] for t in range(9)] for h in range(2)]

    def seen(b, h, t, s):
        return sees_pool(t + 1, s, left=4, right=4, kernel_size=3, stride=2, alignment=alignment)

    out = band_attention(
        q,
        keys,
        values,
        window=Window(4),
        pooling=pooling,
        score_terms=[RelativePositionBias(table)],
        query_offset=1,
        backend=backend,
    )
    torch.testing.assert_close(out, attend(q, keys, values, seen, 2**-0.5, bias), atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("window", [Window(5), Window(2, 1, (1, 3))])
@pytest.mark.usefixtures("small_blocks")
def test_score_terms_and_their_gradients(backend, window):
    inputs = tensors(2, 2, 30, 30, 4)
    table = torch.randn(2, 9, dtype=torch.float64, requires_grad=True)
    shared = torch.randn(1, 3, dtype=torch.float64, requires_grad=True)
    frozen = torch.randn(2, 5, dtype=torch.float64)
    assert_equals_reference(
        inputs,
        backend,
        extra=[table, shared],
        window=window,
        global_mask=torch.arange(30).expand(2, 30) < 2,
        key_padding_mask=right_padding([30, 17], 30),
        score_terms=[RelativePositionBias(t) for t in (table, frozen, shared)],
    )


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


@pytest.mark.parametrize("backend", FAST)
def test_random_sweep(backend):
    """Two hundred random calls over everything the operator takes, at odd sizes."""
    rng = random.Random(0)
    for case in range(200):
        batch, heads, head_dim = rng.randint(1, 3), rng.choice([1, 2, 4]), rng.choice([1, 3, 8])
        queries, keys = rng.randint(1, 90), rng.randint(1, 90)
        arguments = random_arguments(rng, batch, heads, keys)
        inputs = tensors(batch, heads, queries, keys, head_dim, seed=case)
        assert_equals_reference(inputs, backend, **arguments)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [97, 257])
def test_error_is_at_most_twice_that_of_plain_pytorch(backend, dtype, length):
    inputs = tensors(2, 2, length, length, 64, dtype)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    arguments = {"window": Window(32), "global_mask": torch.arange(length).expand(2, length) < 1}
    golden = outputs_and_gradients(exact, backend="reference", **arguments)
    plain = outputs_and_gradients(inputs, backend="reference", **arguments)
    actual = outputs_and_gradients(inputs, backend=backend, **arguments)
    for a, p, g in zip(actual, plain, golden, strict=True):
        assert a.dtype == dtype
        assert (a - g).abs().max() <= 2 * (p - g).abs().max() + 1e-7


@pytest.mark.parametrize("backend", FAST)
def test_memory_around_the_tensors_is_never_read(backend):
    def surrounded(x):
        big = torch.full((x.size(0), x.size(1), x.size(2) + 64, x.size(3)), torch.nan, dtype=x.dtype)
        big[:, :, 32:-32] = x.detach()
        return big[:, :, 32:-32].requires_grad_()

    inputs = tensors(1, 2, 70, 70, 8, torch.float32)
    clean = outputs_and_gradients(inputs, window=Window(9), backend=backend)
    dirty = outputs_and_gradients([surrounded(x) for x in inputs], window=Window(9), backend=backend)
    for a, b in zip(clean, dirty, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("layout", ["BHTD", "BTHD", "TBHD"])
def test_any_memory_layout(backend, layout):
    permutation = {"BHTD": (0, 1, 2, 3), "BTHD": (0, 2, 1, 3), "TBHD": (2, 0, 1, 3)}[layout]
    inverse = [permutation.index(n) for n in range(4)]
    inputs = [
        x.detach().permute(permutation).contiguous().permute(inverse).requires_grad_() for x in tensors(2, 3, 50, 50, 4)
    ]
    assert_equals_reference(inputs, backend, window=Window(6, 6, (1, 2, 2)))


@pytest.mark.parametrize("backend", FAST)
def test_dropout_has_the_right_mean_and_is_repeatable(backend):
    inputs = tensors(1, 2, 40, 40, 4)
    arguments = {"window": Window(8), "global_mask": torch.arange(40)[None] < 1, "backend": backend}
    plain = band_attention(*inputs, **arguments)
    torch.manual_seed(0)
    samples = [band_attention(*inputs, dropout_p=0.3, **arguments) for _ in range(400)]
    assert not torch.equal(samples[0], samples[1])
    spread = torch.stack(samples).std(0) / 20
    assert ((torch.stack(samples).mean(0) - plain).abs() < 5 * spread + 1e-9).all()
    torch.manual_seed(0)
    assert torch.equal(band_attention(*inputs, dropout_p=0.3, **arguments), samples[0])


@pytest.mark.parametrize("backend", FAST)
def test_dropout_gradients_belong_to_the_same_mask(backend):
    inputs = tensors(1, 1, 12, 12, 3)
    table = torch.randn(1, 5, dtype=torch.float64, requires_grad=True)

    def run(query, key, value, table):
        torch.manual_seed(3)
        return band_attention(
            query,
            key,
            value,
            window=Window(3),
            global_mask=torch.arange(12)[None] == 4,
            score_terms=[RelativePositionBias(table)],
            dropout_p=0.4,
            backend=backend,
        )

    assert torch.autograd.gradcheck(run, (*inputs, table))


@pytest.mark.parametrize("alignment", ["grid", "query"])
def test_dropout_gradients_of_pooled_keys(alignment):
    pooling = Pooling(3, 2, alignment)

    def run(query, key, value):
        torch.manual_seed(3)
        keys, hidden = pool_keys(key, pooling, kind="mean", padding_mask=right_padding([9], 11))
        values, _ = pool_keys(value, pooling, kind="max", padding_mask=right_padding([9], 11))
        arguments = {"window": Window(4), "pooling": pooling, "key_padding_mask": hidden}
        return band_attention(query, keys, values, dropout_p=0.4, backend="block", **arguments)

    assert torch.autograd.gradcheck(run, tensors(1, 1, 11, 11, 2))


@pytest.mark.parametrize("backend", ON_CPU)
def test_wide_window_is_full_attention(backend):
    q, k, v = (x.detach() for x in tensors(2, 3, 37, 37, 8))
    full = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(band_attention(q, k, v, window=Window(37), backend=backend), full)


@pytest.mark.parametrize("backend", ON_CPU)
def test_pooling_by_one_is_window_attention(backend):
    q, k, v = tensors(1, 2, 50, 50, 4)
    for alignment in ("grid", "query"):
        pooling = Pooling(1, 1, alignment)
        pooled_keys, _ = pool_keys(k, pooling)
        pooled_values, _ = pool_keys(v, pooling)
        pooled = band_attention(q, pooled_keys, pooled_values, window=Window(7), pooling=pooling, backend=backend)
        torch.testing.assert_close(pooled, band_attention(q, k, v, window=Window(7), backend=backend))


@pytest.mark.parametrize("backend", ON_CPU)
def test_gradient_is_zero_outside_the_receptive_field(backend):
    q, k, v = tensors(1, 1, 60, 60, 4)
    band_attention(q, k, v, window=Window(5, 2), backend=backend)[:, :, 30].sum().backward()
    for x in (k, v):
        outside = torch.ones(60, dtype=torch.bool)
        outside[25:33] = False
        assert (x.grad[0, 0, outside] == 0).all()
        assert (x.grad[0, 0, ~outside] != 0).any(-1).all()
    assert (q.grad[0, 0, torch.arange(60) != 30] == 0).all()


@pytest.mark.parametrize("backend", ON_CPU)
def test_causal_window_does_not_see_the_future(backend):
    q, k, v = (x.detach() for x in tensors(1, 2, 50, 50, 4))
    before = band_attention(q, k, v, window=Window(9, 0), backend=backend)
    k[:, :, 30:], v[:, :, 30:] = 7.0, 7.0
    after = band_attention(q, k, v, window=Window(9, 0), backend=backend)
    assert torch.equal(before[:, :, :30], after[:, :, :30])
    assert not torch.equal(before[:, :, 30:], after[:, :, 30:])


@pytest.mark.parametrize("backend", ON_CPU)
def test_a_query_that_sees_nothing_returns_zeros(backend):
    inputs = tensors(2, 1, 20, 20, 4)
    padding = torch.zeros(2, 20, dtype=torch.bool)
    padding[1] = True
    padding[0, :12] = True
    out, *grads = outputs_and_gradients(inputs, window=Window(3), key_padding_mask=padding, backend=backend)
    assert (out[1] == 0).all()
    assert (out[0, 0, :9] == 0).all()
    assert (out[0, 0, 9:] != 0).all()
    assert all(torch.isfinite(g).all() for g in grads)


class SmallProductsRoundDifferently(TorchDispatchMode):
    """Some CPUs' kernels for matrices of few rows or columns add up in another order; here they differ by 2 ** -20."""

    FEW = 8

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.bmm, torch.ops.aten.baddbmm):
            left, right = args[-2:]
            if min(*left.shape[1:], *right.shape[1:]) < self.FEW:
                out = out * (1 + 2**-20)
        return out


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("pooling", [None, Pooling(5, 4), Pooling(5, 4, "query")])
@pytest.mark.parametrize("cpu", [contextlib.nullcontext, SmallProductsRoundDifferently])
@pytest.mark.parametrize("length", [137, 129, 1])
def test_padding_and_neighbours_change_no_bit(backend, pooling, cpu, length):
    """float32: a row's result is the same with more padding, and with other rows beside it.

    Of 129 tokens the last block of queries has one, which is multiplied as if it were several.
    """
    padded = 300

    def attend_to(q, k, v, padding):
        if pooling is None:
            global_mask = torch.arange(k.size(2)) < torch.tensor([1, 7, 0])[: k.size(0), None]
            return band_attention(
                q, k, v, window=Window(40), global_mask=global_mask, key_padding_mask=padding, backend=backend
            )
        keys, hidden = pool_keys(k, pooling, padding_mask=padding)
        values, _ = pool_keys(v, pooling, padding_mask=padding)
        return band_attention(
            q, keys, values, window=Window(90), pooling=pooling, key_padding_mask=hidden, backend=backend
        )

    q, k, v = (x.detach() for x in tensors(3, 4, padded, padded, 16, torch.float32))
    with cpu():
        together = attend_to(q, k, v, right_padding([length, padded, 40], padded))
        alone = attend_to(*(x[:1, :, :length] for x in (q, k, v)), None)
    assert torch.equal(together[:1, :, :length], alone)


def test_long_input_needs_memory_for_its_outputs_only():
    """64k tokens: a dense score matrix of one head alone would take 16 GiB."""
    q, k, v = tensors(1, 1, 65_536, 65_536, 8, torch.float32)
    out = band_attention(q, k, v, window=Window(16), global_mask=torch.arange(65_536)[None] < 1, backend="block")
    out.sum().backward()
    assert torch.isfinite(k.grad).all()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"query": torch.zeros(1, 2, 4)}, "query must be"),
        ({"key": torch.zeros(1, 2, 4, 4, dtype=torch.float64)}, "key is torch.float64"),
        ({"value": torch.zeros(1, 2, 5, 4)}, "key and value"),
        ({"query": torch.zeros(1, 2, 0, 4)}, "at least one position"),
        ({"global_mask": torch.zeros(1, 5, dtype=torch.bool)}, "global_mask"),
        ({"key_padding_mask": torch.zeros(1, 4)}, "key_padding_mask"),
        ({"pooling": Pooling(1, 1), "global_mask": torch.zeros(1, 4, dtype=torch.bool)}, "leave it out"),
        ({"pooling": Pooling(1, 1), "window": Window(1, 1, 2)}, "cannot be dilated"),
        ({"window": Window(1, 1, (1, 2, 3))}, "3 values for 2 heads"),
        ({"dropout_p": 1.0}, "dropout_p"),
        ({"backend": "cuda"}, "backend must be one of"),
    ],
)
def test_bad_arguments_are_named(change, word):
    x = torch.zeros(1, 2, 4, 4)
    with pytest.raises(ValueError, match=word):
        band_attention(**{"query": x, "key": x, "value": x, "window": Window(1), **change})


def test_a_named_backend_that_cannot_run_the_call_says_why(monkeypatch):
    monkeypatch.setattr(BACKENDS["block"], "why_not", lambda call: "of the weather")
    x = torch.zeros(1, 2, 4, 4)
    with pytest.raises(ValueError, match="'block' cannot run this call: of the weather"):
        band_attention(x, x, x, window=Window(1), backend="block")


@pytest.mark.parametrize("window", [Window(128), Window(512), Window.unlimited(), Window.unlimited(causal=True)])
def test_keys_are_cut_to_few_wide_blocks(window):
    """Whatever the window, a query block meets its keys in blocks of up to 512, not in slivers."""
    x = torch.zeros(1, 1, 2000, 4)
    (residues,) = residue_classes(window, None, 1, 0, 2000)
    lane = lanes.Lane(x, x, torch.arange(2000), band=residues.band)
    for start in range(0, 2000, 64):
        blocks = list(lane.key_blocks(start, 64))
        wanted = sum(block.size for block in blocks)
        assert len(blocks) <= -(-wanted // 512) + 1
        assert wanted <= (2000 if lane.band is None else min(2000, lane.width(64)))


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("pooling", [None, Pooling(3, 2), Pooling(3, 2, "query")])
@pytest.mark.parametrize("causal", [True, False])
def test_unlimited_windows(backend, pooling, causal):
    keys = 40 if pooling is None else pooling.num_pools(40)
    inputs = tensors(1, 2, 40, keys, 4)
    assert_equals_reference(inputs, backend, window=Window.unlimited(causal=causal), pooling=pooling)
    if pooling is None:
        reach = Window.unlimited().left
        assert_equals_reference(inputs, backend, window=Window(reach, 0 if causal else reach, (2, 1)))


@pytest.mark.parametrize("backend", FAST)
def test_float16_scores_are_scaled_before_they_are_rounded(backend, monkeypatch):
    """As on a GPU, which multiplies in float16: q·k of 80,000 is beyond float16, its scaled 10,000 is not."""
    monkeypatch.setattr(f"fairseq_poolingformer.attention.backends.{backend}._matmul_dtype", lambda x: x.dtype)
    x = torch.full((1, 1, 20, 64), 35.0, dtype=torch.float16, requires_grad=True)
    out, *grads = outputs_and_gradients(
        [x, x.detach().requires_grad_(), x.detach().requires_grad_()], window=Window(3), backend=backend
    )
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(g).all() for g in grads)
