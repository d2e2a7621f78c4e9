"""The operator: fast backends against the reference, and properties that every backend must have."""

import inspect
import random

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_poolingformer.attention import (
    BACKENDS,
    DisentangledPosition,
    Pooling,
    RelativePositionBias,
    TwoLevelAttention,
    Window,
    band_attention,
    pool_keys,
)
from fairseq_poolingformer.attention.backends import choice
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.functional import Arguments
from tests.attention.calls import (
    FAST,
    ON_CPU,
    assert_equals_reference,
    assert_error_at_most_twice_the_references,
    assert_same,
    outputs_and_gradients,
    random_arguments,
    right_padding,
    tensors,
)
from tests.attention.naive import attend, pool, sees_pool, starts_of_own_pools


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("kind", ["mean", "max", "ldconv", "mean-ldconv"])
@pytest.mark.parametrize(("kernel_size", "stride", "reach"), [(3, 2, 4), (4, 3, 2), (2, 3, 6), (5, 1, 3)])
@pytest.mark.parametrize("padded", [False, True])
def test_query_alignment_is_equations_6_and_7(backend, kind, kernel_size, stride, reach, padded):
    q, k, v = inputs = tensors(2, 2, 11, 11, 2)
    weight = None
    if "ldconv" in kind:
        weight = tensors(1, 1, kernel_size, 1, 4, seed=5)[0][0, 0].detach().requires_grad_()
        inputs.append(weight)
    padding = right_padding([11, 7], 11) if padded else torch.zeros(2, 11, dtype=torch.bool)
    how, rows = {"kernel_size": kernel_size, "kind": kind, "padding": padding, "weight": weight}, []
    for i in range(11):
        starts = starts_of_own_pools(i, left=reach, right=reach, kernel_size=kernel_size, stride=stride)
        (keys, empty), (values, _) = (pool(x, starts, **how) for x in (k, v))
        visible = lambda b, h, t, s, empty=empty: not empty[b, s]  # noqa: E731
        rows.append(attend(q[:, :, i : i + 1], keys, values, visible, 2**-0.5))

    pooling = Pooling(kernel_size, stride, "query")
    how = {"kind": kind, "padding_mask": padding if padded else None, "weight": weight}
    (keys, hidden), (values, _) = (pool_keys(x, pooling, **how) for x in (k, v))
    arguments = {"window": Window(reach), "pooling": pooling, "key_padding_mask": hidden, "backend": backend}
    assert_same(band_attention(q, keys, values, **arguments), torch.cat(rows, dim=2), inputs)


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize(("alignment", "first_start"), [("grid", 0), ("query", -2)])
@torch.no_grad()
def test_a_score_term_is_told_where_pools_start(backend, alignment, first_start):
    q, k, v = tensors(1, 2, 9, 9, 2)
    table, pooling = torch.randn(2, 41, dtype=torch.float64), Pooling(3, 2, alignment)
    keys, values = (pool_keys(x, pooling)[0] for x in (k, v))
    starts = [first_start + pooling.key_stride * s for s in range(keys.size(2))]
    bias = [[[table[h, t + 1 - start + 20] for start in starts] for t in range(9)] for h in range(2)]

    def visible(b, h, t, s):
        return sees_pool(t + 1, s, left=4, right=4, kernel_size=3, stride=2, alignment=alignment)

    arguments = {"window": Window(4), "pooling": pooling, "query_offset": 1, "backend": backend}
    out = band_attention(q, keys, values, score_terms=[RelativePositionBias(table)], **arguments)
    torch.testing.assert_close(out, attend(q, keys, values, visible, 2**-0.5, bias), atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.usefixtures("small_blocks")
def test_random_sweep(backend):
    rng = random.Random(0)
    for case in range(200):
        batch, heads, head_dim = rng.randint(1, 3), rng.choice([1, 2, 4]), rng.choice([1, 3, 8])
        queries, keys = rng.randint(1, 90), rng.randint(1, 90)
        arguments, tables = random_arguments(rng, batch, heads, keys), []
        if case % 4 == 0:
            trained = torch.randn(rng.choice([1, heads]), 9, dtype=torch.float64, requires_grad=True)
            frozen, tables = torch.randn(heads, 5, dtype=torch.float64), [trained]
            arguments["score_terms"] = [RelativePositionBias(frozen), RelativePositionBias(trained)]
        inputs = tensors(batch, heads, queries, keys, head_dim, seed=case)
        assert_equals_reference(inputs, backend, tables, return_lse=case % 8 < 4, **arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [97, 257])
def test_error_is_at_most_twice_that_of_plain_pytorch(dtype, length):
    arguments = {"window": Window(32), "global_mask": torch.arange(length).expand(2, length) < 1}
    run = lambda backend, inputs: outputs_and_gradients(inputs, backend=backend, **arguments)  # noqa: E731
    assert_error_at_most_twice_the_references(run, tensors(2, 2, length, length, 64, dtype), dtype)


@pytest.mark.parametrize("backend", ON_CPU)
def test_wide_window_is_full_attention(backend):
    q, k, v = (x.detach() for x in tensors(2, 3, 37, 37, 8))
    full = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(band_attention(q, k, v, window=Window(37), backend=backend), full)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"query": torch.zeros(1, 2, 4)}, "query must be"),
        ({"query": [0.0]}, "query must be a Tensor, got list"),
        ({"global_mask": [[False] * 4]}, "global_mask must be a Tensor or a GlobalTokens, got list"),
        ({"window": 3}, "window must be a Window, got int"),
        ({"score_terms": [torch.zeros(2, 3)]}, "score_terms must be a ScoreTerm, got Tensor"),
        ({name: torch.zeros(1, 2, 4, 0) for name in ("query", "key", "value")}, "one channel"),
        ({"key": torch.zeros(1, 2, 4, 4, dtype=torch.float64)}, "key is torch.float64"),
        ({"value": torch.zeros(1, 2, 5, 4)}, "key and value"),
        ({"key_padding_mask": torch.zeros(1, 4)}, "key_padding_mask"),
        ({"pooling": Pooling(1, 1), "global_mask": torch.zeros(1, 4, dtype=torch.bool)}, "leave it out"),
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
    for backend, reason in (("block", "'block' cannot run this call: of the weather"), ("sdpa", "logarithms")):
        with pytest.raises(ValueError, match=reason):
            band_attention(x, x, x, window=Window.unlimited(), return_lse=True, backend=backend)


@pytest.mark.parametrize(
    ("capability", "hip", "has_triton", "head_dim", "picked"),
    [
        ((9, 0), None, True, 32, "triton"),
        ((9, 0), None, True, 264, "block"),
        ((7, 5), None, True, 32, "block"),
        ((9, 4), "6.4", True, 32, "block"),
        ((8, 0), None, False, 32, "block"),
    ],
)
def test_the_kernels_run_on_gpus_that_they_were_made_for(
    monkeypatch, caplog, capability, hip, has_triton, head_dim, picked
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    if not has_triton:
        monkeypatch.setattr(BACKENDS["triton"], "triton", None)
    monkeypatch.setattr(BACKENDS["triton"], "self_check", lambda call: None)
    caplog.set_level("INFO")
    choice._announce_once.cache_clear()
    for device, expected in (("cuda", picked), ("cpu", "block")):
        with FakeTensorMode():
            x = torch.empty(1, 2, 30, head_dim, device=device)
        assert choice.pick(Call.of(x, x, x, window=Window(3)), None) == expected
    if has_triton and (hip or capability < (8, 0)):
        assert "triton: it needs an NVIDIA GPU of compute capability 8.0 or later" in caplog.messages[0]


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


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("changed", ["key_padding_mask", "global_mask"])
def test_masks_changed_before_the_backward_pass_change_no_gradient(backend, changed):
    inputs = tensors(2, 2, 40, 40, 4)
    masks = {"key_padding_mask": right_padding([40, 23], 40), "global_mask": torch.arange(40).expand(2, 40) % 13 == 1}
    expected = outputs_and_gradients(inputs, window=Window(3), backend=backend, **masks)
    masks = masks | {changed: masks[changed].clone()}
    out = band_attention(*inputs, window=Window(3), backend=backend, **masks)
    masks[changed].logical_not_()
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    for a, e in zip((out, *torch.autograd.grad(out, inputs, grad)), expected, strict=True):
        assert torch.equal(a, e)


@pytest.mark.parametrize("changed", range(6))
def test_no_gradient_is_computed_from_tensors_that_were_changed(changed):
    """Query, key, value and the tables of score terms, changed in place between the two passes of the block backend."""
    leaves = tensors(2, 2, 20, 20, 4)
    leaves += [torch.ones(2, width, 4, dtype=torch.float64, requires_grad=True) for width in (8, 8)]
    leaves.append(torch.ones(2, 9, dtype=torch.float64, requires_grad=True))
    query, key, value, c2p, p2c, bias = used = [x.clone() for x in leaves]
    terms = [DisentangledPosition(c2p=c2p, p2c=p2c), RelativePositionBias(bias)]
    out = band_attention(query, key, value, window=Window(3), score_terms=terms, backend="block")
    used[changed].detach().mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(out.sum(), leaves)


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_logarithms_of_the_denominators(backend, dtype):
    """In 32 bits at least; -inf where a query sees nothing, a global one sees every key."""
    query, key, _ = inputs = [x.detach() for x in tensors(1, 2, 9, 9, 4, dtype)]
    place = torch.arange(9)
    visible = ((place[:, None] - place).abs() <= 1) | (place == 3) | (place == 3)[:, None]
    arguments = {"window": Window(1), "key_padding_mask": place[None] >= 6, "backend": backend}
    out, lse = band_attention(*inputs, return_lse=True, global_mask=place[None] == 3, **arguments)
    assert torch.equal(out, band_attention(*inputs, global_mask=place[None] == 3, **arguments))
    assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    scores = 0.5 * query.to(lse.dtype) @ key.to(lse.dtype).transpose(-1, -2)
    expected = scores.masked_fill(~(visible & (place < 6)), -torch.inf).logsumexp(-1)
    torch.testing.assert_close(lse, expected, atol=1e-12 if dtype == torch.float64 else 3e-3, rtol=0)
    out, lse = band_attention(*inputs, return_lse=True, **arguments)
    assert (lse[..., 7:] == -torch.inf).all()
    assert (out[..., 7:, :] == 0.0).all()


@pytest.mark.parametrize("backend", ON_CPU)
def test_the_gradients_of_both_outputs_are_right(backend):
    inputs, place = tensors(1, 2, 5, 7, 2), torch.arange(7)[None]
    tokens = {"window": Window(1), "key_padding_mask": place > 3, "query_offset": 1, "global_mask": place == 2}
    pooled = {"window": Window(2), "pooling": Pooling(3, 2), "key_padding_mask": place == 0}
    for arguments in (tokens, pooled):

        def run(*inputs, arguments=arguments):
            out, lse = band_attention(*inputs, backend=backend, return_lse=True, **arguments)
            return out, lse.where(lse.isfinite(), 0.0)  # with finite differences

        assert torch.autograd.gradcheck(run, inputs)


def spoiled(inputs, hidden, bad):
    """The inputs with ``bad`` at some keys (B, S): in keys, in values, or in one number of both."""
    query, key, value = (x.detach().clone() for x in inputs)
    number = hidden.cumsum(1) % 3
    key[(hidden & (number != 1))[:, None].expand(key.shape[:3])] = bad
    value[..., 0].masked_fill_((hidden & (number != 2))[:, None], bad)
    return [x.requires_grad_() for x in (query, key, value)]


TABLE = torch.randn(2, 16, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
SPOILED = {
    "window": {"return_lse": True},
    "dilated": {"window": Window(2, 2, (1, 3))},
    "global tokens": {"global_mask": torch.arange(30).expand(2, 30) % 28 == 0},
    "pools": {"pooling": Pooling(3, 1)},
    "score terms": {"score_terms": [DisentangledPosition(TABLE, TABLE), RelativePositionBias(torch.ones(2, 5))]},
    "dropout": {"dropout_p": 0.3},
    "full attention": {"window": Window.unlimited(), "backend": "sdpa"},
}


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("kind", SPOILED)
def test_padded_keys_and_values_are_never_read(backend, bad, kind):
    """Outputs and gradients stay, and those of padded keys and values are zero; gaps are padding, too."""
    padding = right_padding([25, 13], 30) | (torch.arange(30) == torch.tensor([[4], [9]]))
    inputs = tensors(2, 2, 30, 30, 4)
    arguments = {"window": Window(4), "key_padding_mask": padding, "backend": backend, **SPOILED[kind]}
    results = []
    for leaves in (inputs, spoiled(inputs, padding, bad)):
        torch.manual_seed(0)
        results.append(outputs_and_gradients(leaves, **arguments))
    torch.testing.assert_close(*reversed(results), atol=1e-13, rtol=0)
    for gradient in results[1][-2:]:
        assert (gradient.transpose(1, 2)[padding] == 0).all()


@pytest.mark.parametrize("pool_type", ["mean", "max", "ldconv", "mean-ldconv"])
@pytest.mark.parametrize("backend", ON_CPU)
def test_the_layer_reads_no_padding(pool_type, backend):
    levels = {"window": Window(3), "pooled_window": Window(7), "pooling": Pooling(3, 2), "pool_type": pool_type}
    attention = TwoLevelAttention(8, 2, **levels, backend=backend).double()
    x, padding = torch.randn(2, 20, 8, dtype=torch.float64), right_padding([20, 13], 20)
    expected = attention(x, key_padding_mask=padding)
    out = attention(x.masked_fill(padding[..., None], torch.nan), key_padding_mask=padding)
    torch.testing.assert_close(out[~padding], expected[~padding], atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_query_that_is_not_finite_leaves_the_others_as_they_are(backend, dtype):
    """With global tokens and padding, over several blocks of queries."""
    query, key, value = (x.detach().to(dtype) for x in tensors(2, 2, 200, 200, 8))
    arguments = {"window": Window(9), "key_padding_mask": right_padding([200, 180], 200), "backend": backend}
    arguments["global_mask"] = torch.arange(200).expand(2, -1) == 3
    expected = band_attention(query, key, value, **arguments)
    query[1, :, 70] = torch.nan
    out = band_attention(query, key, value, **arguments)
    assert out[1, :, 70].isnan().all()
    expected[1, :, 70] = torch.nan
    tolerance = {"atol": 0, "rtol": 1e-12 if dtype == torch.float64 else 1e-5}
    torch.testing.assert_close(out, expected, equal_nan=True, **tolerance)


def test_the_overloads_take_the_functions_own_arguments():
    """The others, in excess or of another type, are mypy's to refuse."""
    named = [p for p in inspect.signature(band_attention).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert [*Arguments.__annotations__, "return_lse"] == [parameter.name for parameter in named]
