"""The operator and pooling at shapes, windows, strides and masks that hypothesis chooses."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from fairseq_poolingformer.attention import Pooling, Window, band_attention
from tests.attention import naive
from tests.attention.calls import ON_CPU, tensors


@st.composite
def masks(draw, batch, size):
    rows = st.lists(st.booleans(), min_size=size, max_size=size)
    chosen = draw(st.none() | st.lists(rows, min_size=batch, max_size=batch))
    return None if chosen is None else torch.tensor(chosen)


@st.composite
def calls(draw, longest):
    batch, heads = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    queries, keys = draw(st.integers(1, longest)), draw(st.integers(1, longest))
    left, right = draw(st.integers(0, longest)), draw(st.none() | st.integers(0, longest))
    arguments = {"query_offset": draw(st.integers(-3, longest))}
    arguments["key_padding_mask"] = draw(masks(batch, keys))
    dilations, dilation = st.integers(1, 3), 1
    if draw(st.booleans()):
        kernel, stride = draw(st.integers(1, 6)), draw(st.integers(1, 6))
        arguments["pooling"] = Pooling(kernel, stride, draw(st.sampled_from(["grid", "query"])))
    else:
        dilation = draw(dilations | st.tuples(*[dilations] * heads))
        arguments["global_mask"] = draw(masks(batch, keys))
    arguments["window"] = Window(left, right, dilation)
    return tensors(batch, heads, queries, keys, draw(st.integers(1, 5)), seed=draw(st.integers(0, 9))), arguments


@pytest.mark.parametrize("backend", ON_CPU)
@given(call=calls(longest=9))
def test_every_backend_is_the_naive_twin(backend, call):
    inputs, arguments = call
    inputs = [x.detach() for x in inputs]
    expected = naive.attend(*inputs, naive.visibility(**arguments), inputs[0].size(-1) ** -0.5)
    torch.testing.assert_close(band_attention(*inputs, backend=backend, **arguments), expected, atol=1e-12, rtol=0)
