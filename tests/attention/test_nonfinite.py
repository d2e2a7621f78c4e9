"""NaN and inf at padded and unseen keys and values: no other output and no gradient may change."""

import pytest
import torch

from fairseq_poolingformer.attention import (
    DisentangledPosition,
    Pooling,
    RelativePositionBias,
    TwoLevelAttention,
    Window,
    band_attention,
    functional,
    nonfinite,
)
from tests.attention.calls import ON_CPU, outputs_and_gradients, right_padding, tensors

BAD = [torch.nan, torch.inf, -torch.inf]


def spoiled(inputs, places, bad):
    """The inputs with ``bad`` in keys and values at ``places`` of every row: a third of them in one or both."""
    query, key, value = (x.detach().clone() for x in inputs)
    for number, place in enumerate(places):
        if number % 3 != 1:
            key[:, :, place] = bad
        if number % 3 != 2:
            value[:, :, place, 0] = bad
    return [x.requires_grad_() for x in (query, key, value)]


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("variant", ["window", "dilated", "globals", "pooled", "terms", "dropout"])
def test_padded_keys_and_values_reach_nothing(backend, bad, variant):
    inputs, padding = tensors(2, 2, 30, 30, 4), right_padding([25, 25], 30)
    arguments = {"window": Window(4), "key_padding_mask": padding, "backend": backend}
    if variant == "dilated":
        arguments["window"] = Window(2, 2, (1, 3))
    elif variant == "globals":
        arguments["global_mask"] = torch.arange(30).expand(2, 30) % 28 == 0
    elif variant == "pooled":
        arguments["pooling"] = Pooling(3, 1)
    elif variant == "terms":
        table = torch.randn(2, 16, 4, dtype=torch.float64)
        arguments["score_terms"] = [DisentangledPosition(table, table), RelativePositionBias(torch.ones(2, 5))]
    elif variant == "dropout":
        arguments["dropout_p"] = 0.3
    results = []
    for given in (inputs, spoiled(inputs, range(25, 30), bad)):
        torch.manual_seed(0)
        results.append(outputs_and_gradients(given, **arguments))
    for actual, expected in zip(*reversed(results), strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-13, rtol=0)


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize(("bad", "dropout_p"), [*((bad, 0.0) for bad in BAD), (torch.nan, 0.9)])
def test_a_key_that_is_not_finite_reaches_only_the_queries_that_see_it(backend, bad, dropout_p):
    """Those whose weight of it dropout drops, too."""
    inputs = tensors(1, 2, 40, 40, 4)
    given = spoiled(inputs, [20], bad)
    arguments = {"window": Window(3), "dropout_p": dropout_p, "backend": backend}
    torch.manual_seed(0)
    clean = band_attention(*inputs, **arguments)
    torch.manual_seed(0)
    out = band_attention(*given, **arguments)
    sees = (torch.arange(40) - 20).abs() <= 3
    torch.testing.assert_close(out[:, :, ~sees], clean[:, :, ~sees], atol=1e-13, rtol=0)
    assert not out[:, :, sees].isfinite().any(-1).any()
    out[:, :, ~sees].sum().backward()
    assert all(x.grad.isfinite().all() for x in given)
    assert (given[1].grad[:, :, 20] == 0).all()
    assert (given[2].grad[:, :, 20] == 0).all()


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("which", ["a query", "a key"])
def test_a_vector_that_is_not_finite_leaves_others_as_they_are_in_every_dtype(backend, dtype, bad, which):
    """With global tokens and padding, over several blocks of queries."""
    query, key, value = (x.detach().to(dtype) for x in tensors(2, 2, 200, 200, 8))
    arguments = {"window": Window(9), "key_padding_mask": right_padding([200, 180], 200), "backend": backend}
    arguments["global_mask"] = torch.arange(200).expand(2, -1) == 3
    clean = band_attention(query, key, value, **arguments)
    spoilt = (query if which == "a query" else key).clone()
    spoilt[1, :, 70] = bad
    given = (spoilt, key, value) if which == "a query" else (query, spoilt, value)
    out = band_attention(*given, **arguments)
    position = torch.arange(200)
    hit = position == 70 if which == "a query" else ((position - 70).abs() <= 9) | (position == 3)
    torch.testing.assert_close(
        out[:, :, ~hit], clean[:, :, ~hit], atol=0, rtol=1e-12 if dtype == torch.float64 else 1e-5
    )
    assert out[1, :, hit].isnan().any(-1).all()
    torch.testing.assert_close(out[0], clean[0])


@pytest.mark.parametrize("backend", ON_CPU)
def test_padding_is_zeroed_where_the_check_would_wait_for_the_device(backend, monkeypatch):
    """As on a GPU, where keys and values are not looked at."""
    monkeypatch.setattr(functional, "run_around_nonfinite", lambda call, run: run(nonfinite.without_padding(call)))
    inputs, padding = tensors(2, 2, 30, 30, 4), right_padding([25, 30], 30)
    dirty = [x.detach().masked_fill(padding[:, None, :, None], torch.nan).requires_grad_() for x in inputs[1:]]
    dirty.insert(0, inputs[0].detach().clone().requires_grad_())
    arguments = {"window": Window(4), "key_padding_mask": padding, "backend": backend}
    results = [outputs_and_gradients(given, **arguments) for given in (inputs, dirty)]
    for actual, expected in zip(*reversed(results), strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-13, rtol=0)


def test_numbers_whose_sum_overflows_are_finite():
    q, k, v = (x.detach() for x in tensors(1, 1, 9, 9, 4, torch.float32))
    v = v.abs() * 3e37
    out = band_attention(q, k, v, window=Window(2), backend="block")
    expected = band_attention(q.double(), k.double(), v.double(), window=Window(2), backend="reference")
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("pool_type", ["mean", "max", "ldconv", "mean-ldconv"])
@pytest.mark.parametrize("backend", ON_CPU)
def test_the_layer_gives_the_same_outputs_whatever_padding_holds(pool_type, backend):
    torch.manual_seed(0)
    attention = TwoLevelAttention(
        8, 2, window=Window(3), pooled_window=Window(7), pooling=Pooling(3, 2), pool_type=pool_type, backend=backend
    ).double()
    x, padding = torch.randn(2, 20, 8, dtype=torch.float64), right_padding([20, 13], 20)
    expected = attention(x, key_padding_mask=padding)
    dirty = x.masked_fill(padding[..., None], torch.nan)
    out = attention(dirty, key_padding_mask=padding)
    torch.testing.assert_close(out[~padding], expected[~padding], atol=1e-12, rtol=0)
