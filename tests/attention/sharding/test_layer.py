"""A document in parts, of which each rank has one, computes what it computes as a whole."""

import math
from itertools import pairwise

import hypothesis.strategies as st
import torch
from hypothesis import given, settings

from fairseq_poolingformer.attention import (
    POOL_TYPES,
    DisentangledPosition,
    Pooling,
    RelativePositionBias,
    TwoLevelAttention,
    Window,
)
from fairseq_poolingformer.attention.patterns import UNLIMITED
from fairseq_poolingformer.attention.sharding import Shard
from tests.attention.sharding.ranks import assert_same, in_threads, joined, of_part, whole
from tests.attention.test_rotary import rotary_of

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
    document = {"x": x, "grad": grad, "tensors": tensors, "terms": terms}
    document |= {"global_mask": global_mask, "key_padding_mask": padding}
    if draw(st.booleans()):
        positions = torch.randint(0, 99, (draw(st.sampled_from([1, batch])), num_tokens)).sort(1).values
        document["rotary"] = rotary_of(positions, arguments.get("pooling"), padding)
    return document


@st.composite
def divisions(draw, num_tokens, most):
    """Neighbouring parts of a document, of one token or more each."""
    ends = draw(st.sets(st.integers(1, num_tokens - 1), max_size=most - 1)) if num_tokens > 1 else set()
    bounds = [0, *sorted(ends), num_tokens]
    return [range(*ends) for ends in pairwise(bounds)]


@settings(max_examples=max(100, settings.default.max_examples))
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


@settings(max_examples=max(100, settings.default.max_examples))
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


def test_time_first_is_the_same_layer():
    torch.manual_seed(0)
    arguments = {"window": Window(3), "pooled_window": Window(7), "pooling": Pooling(3, 2)}
    layer = TwoLevelAttention(C, H, **arguments, separate_global_projections=True).double()
    first = TwoLevelAttention(C, H, **arguments, separate_global_projections=True, batch_first=False).double()
    first.load_state_dict(layer.state_dict())
    x = torch.randn(2, 31, C, dtype=torch.float64)
    masks = {"global_mask": torch.rand(2, 31) < 0.2, "key_padding_mask": torch.rand(2, 31) < 0.2}

    def outputs(ranks):
        part = range(0, 12) if ranks.rank == 0 else range(12, 31)
        rows = slice(part.start, part.stop)
        of_part = {name: mask[:, rows] for name, mask in masks.items()}
        shard = Shard.of(2, len(part), ranks=ranks, chunk_tokens=5, **of_part)
        return first(x[:, rows].transpose(0, 1), shard=shard).transpose(0, 1)

    torch.testing.assert_close(torch.cat(in_threads(2, outputs), 1), layer(x, **masks), atol=1e-12, rtol=0)


def test_dropout_needs_no_more_than_equal_seeds():
    """Of a document in chunks; test_exchange.py has it in processes."""
    torch.manual_seed(0)
    layer = TwoLevelAttention(C, H, window=Window(3), pooled_window=Window(7), pooling=Pooling(3, 2), dropout=0.4)
    x, grad = torch.randn(2, 2, 31, C, dtype=torch.float64)
    document = {"x": x, "grad": grad, "global_mask": torch.rand(2, 31) < 0.2, "key_padding_mask": None}
    expected = of_part(layer.double(), document, range(31), seed=5)
    for chunk_tokens in (1, 7, 30):
        assert_same(of_part(layer, document, range(31), chunk_tokens=chunk_tokens, seed=5), expected)
    assert not torch.allclose(of_part(layer, document, range(31), seed=6)[0], expected[0])
    layer.eval()
    assert_same(of_part(layer, document, range(31), seed=6), whole(layer, document))


def volume(channels, window, pooled_window=None, kernel=1, stride=1, itemsize=8):
    """Bytes that a rank with two neighbours gets in a forward pass of a layer: as many as it sends."""
    rows = 2 * window
    if pooled_window is not None:
        pools = 2 * (pooled_window // stride)  # of borders at multiples of the stride
        rows += kernel - stride + 2 * pools
    return rows * channels * itemsize


def sent(num_tokens, size=3, num_globals=0):
    """Bytes that each rank sends forward and backward, beside those of the batch."""
    torch.manual_seed(0)
    layer = TwoLevelAttention(C, H, window=Window(8), pooled_window=Window(32), pooling=Pooling(5, 4)).double()
    mask = torch.zeros(1, num_tokens, dtype=torch.bool)
    mask[:, :num_globals] = True
    rows = num_tokens // size

    def run(ranks):
        of_part = mask[:, rows * ranks.rank :][:, :rows]
        shard = Shard.of(1, rows, ranks=ranks, global_mask=of_part)
        before = ranks.sent
        x = torch.randn(1, rows, C, dtype=torch.float64, requires_grad=True)
        out = layer(x, shard=shard)
        forward = ranks.sent - before
        out.sum().backward()
        return forward, ranks.sent - before

    return in_threads(size, run)


def test_bytes_do_not_depend_on_the_length():
    short, long = sent(240), sent(2400)
    assert short == long
    forward, both = short[1]  # the rank with two neighbours
    assert forward == volume(C, 8, 32, 5, 4)
    assert both == 2 * forward
    with_one = sent(240, num_globals=1)
    row = C * 8
    assert with_one[0][0] - short[0][0] == 2 * row  # the global token's input to two others
    assert with_one[1][0] - short[1][0] == row + H * 8  # this rank's share of its row, and of its logarithm
    assert with_one[1][1] - short[1][1] == (row + H * 8) + row  # and the gradient of that input


def test_bytes_of_bart_large():
    """In bfloat16, 12 layers, 6 of them with two levels, forward. Keys and values of level one would be 18 MiB."""
    mib = (6 * volume(1024, 128, itemsize=2) + 6 * volume(1024, 128, 512, 5, 4, itemsize=2)) / 2**20
    assert math.isclose(mib, 12.01, abs_tol=0.01)
