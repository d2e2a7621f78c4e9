"""The operator and pooling at shapes, windows, strides and masks that hypothesis chooses."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from fairseq_poolingformer.attention import POOL_TYPES, Pooling, Window, band_attention, pool_keys
from tests.attention import naive
from tests.attention.calls import FAST, ON_CPU, assert_equals_reference, tensors


@st.composite
def masks(draw, batch, size):
    """None, or (B, size) bool."""
    rows = st.lists(st.booleans(), min_size=size, max_size=size)
    chosen = draw(st.none() | st.lists(rows, min_size=batch, max_size=batch))
    return None if chosen is None else torch.tensor(chosen)


@st.composite
def calls(draw, longest):
    """``(inputs, arguments)`` of a call with up to so many queries and keys."""
    batch, heads = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    queries, keys = draw(st.integers(1, longest)), draw(st.integers(1, longest))
    left, right = draw(st.integers(0, longest)), draw(st.none() | st.integers(0, longest))
    arguments = {"query_offset": draw(st.integers(-3, longest))}
    arguments["key_padding_mask"] = draw(masks(batch, keys))
    dilations = st.integers(1, 3)
    dilation = 1
    if draw(st.booleans()):
        kernel, stride = draw(st.integers(1, 6)), draw(st.integers(1, 6))
        arguments["pooling"] = Pooling(kernel, stride, draw(st.sampled_from(["grid", "query"])))
    else:
        dilation = draw(dilations | st.tuples(*[dilations] * heads))
        arguments["global_mask"] = draw(masks(batch, keys))
    arguments["window"] = Window(left, right, dilation)
    return tensors(batch, heads, queries, keys, draw(st.integers(1, 5)), seed=draw(st.integers(0, 9))), arguments


def sees(arguments):
    """Who sees whom, as :func:`tests.attention.naive.attend` asks it."""
    window, pooling, offset = arguments["window"], arguments.get("pooling"), arguments["query_offset"]
    padding, is_global = arguments["key_padding_mask"], arguments.get("global_mask")
    sides = {"left": window.left, "right": window.left if window.right is None else window.right}

    def seen(b, h, t, s):
        i = offset + t
        if padding is not None and padding[b, s]:
            return False
        if pooling is not None:
            kind = {"kernel_size": pooling.kernel_size, "stride": pooling.stride, "alignment": pooling.alignment}
            return naive.sees_pool(i, s, **sides, **kind)
        if is_global is not None and (is_global[b, s] or (0 <= i < is_global.size(1) and is_global[b, i])):
            return True
        dilation = window.dilation if isinstance(window.dilation, int) else window.dilation[h]
        return naive.sees(i, s, **sides, dilation=dilation)

    return seen


@pytest.mark.parametrize("backend", ON_CPU)
@given(call=calls(longest=9))
def test_every_backend_is_the_naive_twin(backend, call):
    inputs, arguments = call
    inputs = [x.detach() for x in inputs]
    expected = naive.attend(*inputs, sees(arguments), inputs[0].size(-1) ** -0.5)
    torch.testing.assert_close(band_attention(*inputs, backend=backend, **arguments), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", FAST)
@given(call=calls(longest=150))
def test_every_gradient_is_the_references(backend, call):
    """Several blocks of queries."""
    inputs, arguments = call
    assert_equals_reference(inputs, backend, **arguments)


@given(data=st.data(), kind=st.sampled_from(POOL_TYPES), alignment=st.sampled_from(["grid", "query"]))
def test_pools_are_the_naive_twins(data, kind, alignment):
    batch, heads, tokens = (data.draw(st.integers(1, most)) for most in (2, 3, 14))
    kernel, stride = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    padding = data.draw(masks(batch, tokens))
    (x, _, _) = tensors(batch, heads, tokens, 1, 2)
    sets = data.draw(st.sampled_from([1, heads]))
    weight = tensors(1, 1, sets * kernel, 1, heads * 2, seed=1)[0][0, 0] if "ldconv" in kind else None
    pooled, empty = pool_keys(x, Pooling(kernel, stride, alignment), kind=kind, padding_mask=padding, weight=weight)
    starts = naive.pool_starts(tokens, kernel_size=kernel, stride=stride, alignment=alignment)
    expected, expected_empty = naive.pool(x, starts, kernel_size=kernel, kind=kind, padding=padding, weight=weight)
    torch.testing.assert_close(pooled, expected, atol=1e-12, rtol=0)
    assert empty is None if padding is None else torch.equal(empty, expected_empty)
