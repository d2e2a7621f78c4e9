"""A document in parts, of which each rank has one, computes what it computes as a whole."""

from itertools import pairwise
from pathlib import Path

import hypothesis.strategies as st
import pytest
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

ROOT = Path(__file__).resolve().parents[3]
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
            "pooled_window": Window(reach, draw(st.sampled_from([None, None, 0, 5]))),
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
        padding = draw(st.sampled_from([padding, padding.flip(1), torch.rand(batch, num_tokens) < 0.5]))
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
    parts = data.draw(divisions(num_tokens, 6))
    results = in_threads(len(parts), lambda ranks: of_part(layer, document, parts[ranks.rank], ranks))
    assert_same(joined(results), whole(layer, document))
    assert_same(of_part(layer, document, range(num_tokens)), whole(layer, document))


def test_dropout_depends_on_the_seed_alone():
    """Of a document in one part; test_exchange.py has several in processes."""
    torch.manual_seed(0)
    layer = TwoLevelAttention(C, H, window=Window(3), pooled_window=Window(7), pooling=Pooling(3, 2), dropout=0.4)
    x, grad = torch.randn(2, 2, 31, C, dtype=torch.float64)
    document = {"x": x, "grad": grad, "global_mask": torch.rand(2, 31) < 0.2, "key_padding_mask": None}
    expected = of_part(layer.double(), document, range(31), seed=5)
    assert_same(of_part(layer, document, range(31), seed=5), expected, 0.0)
    assert not torch.allclose(of_part(layer, document, range(31), seed=6)[0], expected[0])
    layer.eval()
    assert_same(of_part(layer, document, range(31), seed=6), whole(layer, document))


def layer_bytes(rank, size, channels, heads, window, pooled_window=None, num_globals=0, itemsize=8, wide=8):
    """Bytes that a rank gets in a layer's forward pass: pools of 5 tokens, 4 apart; global tokens of the first rank.

    Global tokens' rows, and their logarithms, are in the dtype of a softmax, ``wide`` bytes a number.
    """
    neighbours, has_next = (rank > 0) + (rank < size - 1), rank < size - 1
    rows = neighbours * window
    if pooled_window is not None:
        rows += has_next * (5 - 4) + neighbours * 2 * (pooled_window // 4)
    if rank:
        return (rows + num_globals) * channels * itemsize
    return rows * channels * itemsize + (size - 1) * num_globals * (channels + heads) * wide


def encoder_bytes(rank, size, **arguments):
    """Those of twelve layers, the second half of which have two levels."""
    return 6 * layer_bytes(rank, size, **arguments) + 6 * layer_bytes(rank, size, pooled_window=512, **arguments)


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@torch.no_grad()
def test_bytes_of_bart_larges_windows_do_not_depend_on_the_length(size):
    """An encoder of twelve layers with one global token; its channels, of which bytes are a multiple, are few."""
    torch.manual_seed(0)
    two = {"pooled_window": Window(512), "pooling": Pooling(5, 4), "pool_type": "mean"}
    layers = [TwoLevelAttention(C, H, window=Window(128), **(two if n > 5 else {})).double() for n in range(12)]

    def run(ranks, rows):
        mask = torch.arange(rows)[None] == (0 if ranks.rank == 0 else -1)
        shard = Shard.of(1, rows, ranks=ranks, global_mask=mask)
        x, before = torch.randn(1, rows, C, dtype=torch.float64), ranks.got
        for layer in layers:
            x = layer(x, shard=shard)
        return ranks.got - before

    expected = [encoder_bytes(rank, size, channels=C, heads=H, window=128, num_globals=1) for rank in range(size)]
    for rows in (520, 1040):
        assert in_threads(size, lambda ranks, rows=rows: run(ranks, rows)) == expected


def test_the_documents_table_of_volumes():
    """BART-large's encoder in bfloat16: the most that one of eight processes gets, in MiB."""
    large = {"channels": 1024, "heads": 16, "window": 128, "num_globals": 1, "itemsize": 2, "wide": 4}
    most = {size: max(encoder_bytes(rank, size, **large) for rank in range(size)) / 2**20 for size in (2, 3, 4, 8)}
    assert [round(mib) for mib in most.values()] == [6, 12, 12, 12]
    rows = (ROOT / "docs/scale.md").read_text(encoding="utf-8").split("\n")
    for tokens in (16384, 131072):
        part = 12 * tokens / 8 * 1024 * 2 / 2**20  # of one tensor in twelve layers
        ulysses, ring = 4 * part * 7 / 8, 2 * part * 7  # queries, keys, values and outputs; keys and values
        cells = [f"{tokens:,} tokens", *(f"{round(mib):,}" for mib in (most[8], ulysses, ring))]
        assert f"| {' | '.join(cells)} |" in rows
