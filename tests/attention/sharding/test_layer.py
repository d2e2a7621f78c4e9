"""A document in parts, of which each rank has one, computes what it computes as a whole."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from fairseq_poolingformer.attention import (
    POOL_TYPES,
    DisentangledPosition,
    Pooling,
    RelativePositionBias,
    TwoLevelAttention,
    Window,
)
from fairseq_poolingformer.attention.patterns import UNLIMITED
from tests.attention.sharding.ranks import assert_same, in_threads, joined, of_part, whole

C, H = 8, 2


@st.composite
def layers(draw):
    """Arguments of a layer."""
    small = st.integers(0, 9)
    right = draw(st.sampled_from([None, None, 0, 2]))
    dilation = draw(st.sampled_from([1, 1, 2, (1, 3)]))
    arguments = {"window": Window(draw(small), right, dilation)}
    if draw(st.integers(0, 9)) == 0:
        arguments["window"] = Window.unlimited()
    if draw(st.integers(0, 4)):
        sizes = draw(st.integers(1, 6)), draw(st.integers(1, 6))
        reach = draw(st.integers(0, 14))
        arguments |= {
            "pooling": Pooling(*sizes, draw(st.sampled_from(["grid", "query"]))),
            "pooled_window": Window(reach, draw(st.sampled_from([None, None, 0]))),
            "pool_type": draw(st.sampled_from(POOL_TYPES)),
            "ldconv_heads": draw(st.sampled_from([1, H])),
            "mix": draw(st.booleans()),
            "share_weights": draw(st.booleans()),
        }
    arguments["separate_global_projections"] = draw(st.booleans())
    arguments["backend"] = draw(st.sampled_from(["block", "block", "reference"]))
    arguments["batch_first"] = True
    return arguments


@st.composite
def score_terms(draw, arguments):
    """Tensors, and the function that makes score terms of them."""
    window = arguments["window"]
    if arguments["separate_global_projections"] or draw(st.booleans()):
        return (), None
    tables = [torch.randn(H, 7, dtype=torch.float64)]
    if window.left == UNLIMITED or draw(st.booleans()):
        return tables, lambda table: (RelativePositionBias(table),)
    k = max(1, max(window.left, window.right) * max(window.head_dilations(H)))
    tables += [torch.randn(H, n, C // H, dtype=torch.float64) for n in (2 * k, 2 * k, 6, 6)]
    return tables, lambda table, *positions: (RelativePositionBias(table), DisentangledPosition(*positions, 5))


@st.composite
def documents(draw, arguments, num_tokens):
    batch = draw(st.integers(1, 2))
    share = draw(st.sampled_from([0.0, 0.05, 0.4]))
    tensors, terms = draw(score_terms(arguments))
    global_mask = torch.rand(batch, num_tokens) < share if share else None
    padding = None
    if draw(st.booleans()):
        lengths = [draw(st.integers(0, num_tokens)) for _ in range(batch)]
        padding = torch.arange(num_tokens) >= torch.tensor(lengths)[:, None]
    x, grad = torch.randn(2, batch, num_tokens, C, dtype=torch.float64)
    masks = {"global_mask": global_mask, "key_padding_mask": padding}
    return {"x": x, "grad": grad, "tensors": tensors, "terms": terms, **masks}


@st.composite
def divisions(draw, num_tokens, most):
    """Neighbouring parts of a document, of one token or more each."""
    ends = draw(st.sets(st.integers(1, num_tokens - 1), max_size=most - 1)) if num_tokens > 1 else set()
    bounds = [0, *sorted(ends), num_tokens]
    return [range(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]


@given(data=st.data())
def test_parts_in_threads_are_the_whole(data):
    torch.manual_seed(data.draw(st.integers(0, 99)))
    num_tokens = data.draw(st.integers(1, 40))
    arguments = data.draw(layers())
    layer = TwoLevelAttention(C, H, **arguments).double()
    document = data.draw(documents(arguments, num_tokens))
    parts = data.draw(divisions(num_tokens, 4))
    expected = whole(layer, document)
    results = in_threads(len(parts), lambda ranks: of_part(layer, document, parts[ranks.rank], ranks))
    assert_same(joined(results), expected)


@given(data=st.data())
def test_chunks_of_time_are_the_whole_and_the_parts_of_space(data):
    torch.manual_seed(data.draw(st.integers(0, 99)))
    num_tokens = data.draw(st.integers(1, 40))
    arguments = data.draw(layers())
    layer = TwoLevelAttention(C, H, **arguments).double()
    document = data.draw(documents(arguments, num_tokens))
    parts = data.draw(divisions(num_tokens, 6))
    sizes = [len(part) for part in parts]
    chunked = of_part(layer, document, range(num_tokens), chunk_tokens=sizes)
    assert_same(chunked, whole(layer, document))
    results = in_threads(len(parts), lambda ranks: of_part(layer, document, parts[ranks.rank], ranks))
    outputs = joined(results)[0], chunked[0]
    if document["global_mask"] is None:  # whose rows are merged by threes or by tens, which round differently
        assert torch.equal(*outputs)
    assert_same(outputs[:1], outputs[1:], 1e-14)
