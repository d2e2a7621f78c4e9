"""PyTorch's FlashAttention as a backend: its calls with a kernel that computes on a CPU what the real one is said to.

The stand-in checks what the real kernel checks, whole lengths and contiguous vectors of a multiple of 8 numbers.
"""

from __future__ import annotations

import random
from itertools import pairwise, starmap

import pytest
import torch
import torch.nn.attention.varlen as torch_varlen
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_poolingformer.attention import Pooling, RelativePositionBias, Window, band_attention
from fairseq_poolingformer.attention.backends import varlen
from fairseq_poolingformer.attention.backends.plan import Plan
from fairseq_poolingformer.attention.call import Call
from tests.attention.calls import assert_equals_reference, random_arguments, right_padding, tensors


def sequences(query, key, cu_seq_q, cu_seq_k, max_q, max_k):
    """The slices of each sequence's queries and keys, after the kernel's own checks."""
    for x in (query, key):
        assert x.dim() == 3
        assert x.stride(-1) == 1
        assert x.size(2) % 8 == 0
        assert x.size(2) <= 256
    for places, x, longest in ((cu_seq_q, query, max_q), (cu_seq_k, key, max_k)):
        assert places.dtype == torch.int32
        assert places.is_contiguous()
        assert places[0] == 0
        assert places[-1] == x.size(0)
        assert int(places.diff().max()) == longest
    of_queries, of_keys = (starmap(slice, pairwise(places.tolist())) for places in (cu_seq_q, cu_seq_k))
    yield from zip(of_queries, of_keys, strict=True)


def scores(query, key, max_k, scale, window):
    """(H, U, S) scores of one sequence, as the kernel takes a window: what is no narrower than the keys is none."""
    left, right = (-1 if side >= max_k else side for side in window)
    left, right = max_k if left < 0 <= right else left, max_k if right < 0 <= left else right
    distance = torch.arange(key.size(0)) - torch.arange(query.size(0))[:, None] - (key.size(0) - query.size(0))
    seen = (distance >= -left) & (distance <= right) if left >= 0 else torch.ones_like(distance, dtype=torch.bool)
    return (scale * torch.einsum("uhd,shd->hus", query, key)).masked_fill(~seen, -torch.inf)


def forward(query, key, value, *lengths, return_aux, scale, window_size):
    assert return_aux.lse
    assert key.shape == value.shape
    assert value.stride(-1) == 1
    wide = torch.promote_types(query.dtype, torch.float32)
    out, lse = torch.empty_like(query), query.new_empty(query.size(1), query.size(0), dtype=wide)
    for queries, keys in sequences(query, key, *lengths):
        s = scores(query[queries].to(wide), key[keys].to(wide), lengths[3], scale, window_size)
        blind = s.amax(-1, keepdim=True) == -torch.inf
        weights = s.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)
        out[queries] = torch.einsum("hus,shd->uhd", weights, value[keys].to(wide))
        lse[:, queries] = s.logsumexp(-1).masked_fill(blind[..., 0], torch.inf)
    return out, lse


def backward(grad_out, query, key, value, out, lse, *rest):
    *lengths, is_causal, state, scale, window = rest
    assert not is_causal
    assert state.dtype == torch.uint64
    assert lse.is_contiguous()
    assert all(x.stride(-1) == 1 for x in (grad_out, value, out))
    grads = [torch.zeros_like(x) for x in (query, key, value)]
    for queries, keys in sequences(query, key, *lengths):
        weights = (scores(query[queries], key[keys], lengths[3], scale, window) - lse[:, queries, None]).exp()
        delta = (grad_out[queries] * out[queries]).sum(-1).T[..., None]
        inner = weights * (torch.einsum("uhd,shd->hus", grad_out[queries], value[keys]) - delta)
        grads[0][queries] = scale * torch.einsum("hus,shd->uhd", inner, key[keys])
        grads[1][keys] = scale * torch.einsum("hus,uhd->shd", inner, query[queries])
        grads[2][keys] = torch.einsum("hus,uhd->shd", weights, grad_out[queries])
    return tuple(grads)


@pytest.fixture
def on_cpu(monkeypatch):
    """The backend runs on a CPU, with the kernel's stand-in."""
    monkeypatch.setattr(varlen, "why_not", lambda call: None)
    monkeypatch.setattr(torch_varlen, "varlen_attn", forward)
    monkeypatch.setattr(torch.ops.torch_attn, "_varlen_attn_backward", backward)


@pytest.mark.parametrize("length", [1, 5, 33, 97])
@pytest.mark.parametrize(
    "window",
    [
        Window(0),
        Window(4),
        Window(16, 0),
        Window(0, 3),
        Window(3, 7),
        Window(500),
        Window(2, 2, (1, 4)),
        Window.unlimited(),
    ],
)
@pytest.mark.usefixtures("on_cpu")
def test_windows(length, window):
    assert_equals_reference(tensors(2, 2, length, length, 5), "varlen", window=window)


@pytest.mark.parametrize("alignment", ["grid", "query"])
@pytest.mark.parametrize(("kernel_size", "stride"), [(5, 4), (4, 4), (2, 5), (1, 1), (9, 2)])
@pytest.mark.parametrize("pooled_window", [0, 1, 20, 300])
@pytest.mark.usefixtures("on_cpu")
def test_pooled_windows(alignment, kernel_size, stride, pooled_window):
    pooling = Pooling(kernel_size, stride, alignment)
    inputs = tensors(2, 2, 101, pooling.num_pools(101), 8)
    padding = right_padding([inputs[1].size(2), 3], inputs[1].size(2))
    for masks in ({}, {"key_padding_mask": padding}):
        assert_equals_reference(inputs, "varlen", window=Window(pooled_window), pooling=pooling, **masks)


@pytest.mark.parametrize("window", [Window(4), Window(6, 0), Window(2, 2, (2, 1, 3))])
@pytest.mark.parametrize("offset", [0, 7, -4, 80, -50])
@pytest.mark.parametrize("queries", [40, 70])
@pytest.mark.usefixtures("on_cpu")
def test_globals_padding_and_offset(window, offset, queries):
    inputs = tensors(3, 3, queries, 61, 4)
    global_mask = torch.zeros(3, 61, dtype=torch.bool)
    global_mask[0, [0, 9, 10, 60]] = True
    global_mask[1, 30] = True  # row 2 has none; row 1's is padding
    arguments = {"window": window, "query_offset": offset, "key_padding_mask": right_padding([61, 25, 1], 61)}
    assert_equals_reference(inputs, "varlen", **arguments)
    assert_equals_reference(inputs, "varlen", global_mask=global_mask, **arguments)


@pytest.mark.usefixtures("on_cpu")
def test_random_sweep():
    rng = random.Random(0)
    for case in range(100):
        batch, heads, head_dim = rng.randint(1, 3), rng.choice([1, 2, 4]), rng.choice([1, 3, 8])
        queries, keys = rng.randint(1, 90), rng.randint(1, 90)
        arguments = random_arguments(rng, batch, heads, keys) | {"scale": rng.choice([None, 0.02, 3.0])}
        assert_equals_reference(tensors(batch, heads, queries, keys, head_dim, seed=case), "varlen", **arguments)


@pytest.mark.usefixtures("on_cpu")
def test_a_global_token_inside_the_window_counts_once():
    query = torch.zeros(1, 1, 3, 8, dtype=torch.float64)
    value = torch.eye(3, 8, dtype=torch.float64)[None, None]
    mask = torch.tensor([[False, True, False]])
    out = band_attention(query, query, value, window=Window(1), global_mask=mask, backend="varlen")
    expected = torch.tensor([[1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2]], dtype=torch.float64)
    torch.testing.assert_close(out[0, 0, :, :3], expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.usefixtures("on_cpu")
def test_sixteen_bits(dtype):
    """Hidden keys and merged parts cost no precision: the error is at most twice that of plain PyTorch."""
    inputs = [x.detach() for x in tensors(2, 2, 97, 97, 64, dtype)]
    arguments = {"window": Window(12), "global_mask": torch.arange(97).expand(2, 97) < 1}
    arguments["key_padding_mask"] = right_padding([97, 60], 97)
    exact = band_attention(*(x.double() for x in inputs), backend="reference", **arguments)
    plain = band_attention(*inputs, backend="reference", **arguments)
    actual = band_attention(*inputs, backend="varlen", **arguments)
    assert actual.dtype == dtype
    assert (actual - exact).abs().max() <= 2 * (plain - exact).abs().max()


@pytest.mark.parametrize("order", [(2, 0, 1, 3), (0, 2, 1, 3), (0, 1, 3, 2)])
@pytest.mark.usefixtures("on_cpu")
def test_layouts_in_memory(order):
    """(T, B, H, D) as in fairseq, (B, T, H, D), and vectors that are not contiguous."""
    back = [order.index(n) for n in range(4)]
    inputs = [x.detach().permute(order).contiguous().permute(back) for x in tensors(2, 3, 20, 20, 8)]
    assert_equals_reference([x.requires_grad_() for x in inputs], "varlen", window=Window(3))


@pytest.fixture
def fake_gpu(monkeypatch):
    """Tensors of a GPU that have shapes and no numbers."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 0))
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    varlen._why_not_this_pytorch.cache_clear()
    with FakeTensorMode():
        yield
    varlen._why_not_this_pytorch.cache_clear()


def on_gpu(batch=2, head_dim=64, dtype=torch.bfloat16, device="cuda", **arguments):
    """A call."""
    inputs = [torch.empty(batch, 3, 50, head_dim, dtype=dtype, device=device) for _ in range(3)]
    return Call.of(*inputs, **{"window": Window(5), **arguments})


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.usefixtures("fake_gpu")
def test_the_real_kernels_take_the_calls(padded):
    """Their signatures and shapes, forward and backward."""
    call = on_gpu(device="cpu", key_padding_mask=torch.zeros(2, 50, dtype=torch.bool) if padded else None)
    plan = Plan.of(call)
    for part in varlen.windows(plan):
        kernel = varlen._Kernel.of(part, plan.scale, call.query, call.key, call.value, plan.hidden)
        with torch.no_grad():
            out, lse = kernel.forward()
            grads = kernel.backward(out, out, lse)
        assert (lse.shape, lse.dtype) == (call.query.shape[:3], torch.float32)
        assert [x.shape for x in (out, *grads)] == [call.query.shape] * 4


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"dtype": torch.float32}, "in 16 bits, query is torch.float32"),
        ({"dropout_p": 0.1}, "no dropout"),
        ({"score_terms": (RelativePositionBias(torch.zeros(3, 5)),)}, "no score terms"),
        ({"scale": 0.0}, "scales from 1e-05"),
        ({"batch": 0}, "no empty batch"),
        ({"head_dim": 256}, "below 256"),
    ],
)
@pytest.mark.usefixtures("fake_gpu")
def test_what_it_does_not_compute_it_refuses(arguments, reason):
    assert varlen.why_not(on_gpu()) is None
    assert reason in varlen.why_not(on_gpu(**arguments))


@pytest.mark.usefixtures("fake_gpu")
def test_other_devices_and_versions_are_refused(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: False)
    assert "without FlashAttention" in varlen.why_not(on_gpu())
    varlen._why_not_this_pytorch.cache_clear()
    monkeypatch.setattr(torch_varlen, "varlen_attn", lambda query, key, value: None)
    assert "takes no window" in varlen.why_not(on_gpu())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (7, 5))
    assert "capability 8.0" in varlen.why_not(on_gpu())
    x = torch.zeros(1, 2, 30, 8)
    assert "an NVIDIA GPU, query is on cpu" in varlen.why_not(Call.of(x, x, x, window=Window(1)))
