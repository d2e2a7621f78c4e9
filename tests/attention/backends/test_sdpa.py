"""PyTorch's own attention as a backend: beside the reference, what it refuses, and that it is chosen."""

from __future__ import annotations

import pytest
import torch

from fairseq_poolingformer.attention import Pooling, RelativePositionBias, TwoLevelAttention, Window, band_attention
from fairseq_poolingformer.attention.backends import sdpa
from fairseq_poolingformer.attention.call import Call
from tests.attention.calls import assert_equals_reference, right_padding, tensors

ALL = Window.unlimited()


@pytest.mark.parametrize(
    ("queries", "keys", "arguments"),
    [
        (30, 30, {"window": ALL}),
        (7, 30, {"window": ALL, "query_offset": 11}),
        (30, 30, {"window": ALL, "key_padding_mask": right_padding([30, 17], 30)}),
        (30, 30, {"window": ALL, "key_padding_mask": right_padding([0, 30], 30)}),  # a row without keys
        (30, 30, {"window": ALL, "global_mask": torch.arange(30).expand(2, 30) % 9 == 0, "scale": 0.3}),
        (30, Pooling(3, 2).num_pools(30), {"window": ALL, "pooling": Pooling(3, 2)}),
        (30, 32, {"window": ALL, "pooling": Pooling(3, 1, "query")}),
        (30, 30, {"window": Window(29)}),
        (7, 30, {"window": Window(17, 18), "query_offset": 11}),
        (30, 15, {"window": Window(29), "pooling": Pooling(2, 2)}),
    ],
)
def test_it_is_the_reference(queries, keys, arguments):
    assert_equals_reference(tensors(2, 2, queries, keys, 4), "sdpa", **arguments)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"window": Window(28)}, "the window must show every query every key"),
        ({"window": Window(40, 28)}, "the window must show every query every key"),
        ({"window": Window(40), "query_offset": 12}, "the window must show every query every key"),
        ({"window": Window(57), "pooling": Pooling(2, 2)}, "the window must show every query every key"),
        ({"window": Window.unlimited(causal=True)}, "the window must show every query every key"),
        ({"window": ALL, "pooling": Pooling(3, 2, "query")}, "every ξ-th of its own pools"),
        ({"window": ALL, "dropout_p": 0.1}, "dropout"),
        ({"window": ALL, "score_terms": (RelativePositionBias(torch.zeros(2, 59)),)}, "score terms"),
    ],
)
def test_what_it_does_not_compute_it_refuses(arguments, reason):
    x = torch.zeros(1, 2, 30, 4)
    with pytest.raises(ValueError, match=reason):
        band_attention(x, x, x, backend="sdpa", **arguments)


def test_layers_whose_windows_hold_the_text_are_pytorchs_on_a_cpu(monkeypatch):
    calls, run = [], sdpa.run
    monkeypatch.setattr(sdpa, "run", lambda call: calls.append(call) or run(call))
    x = torch.randn(1, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    two = {"pooling": Pooling(2, 2), "pooled_window": Window(9)}
    for window, backend, used, pools in (
        *((ALL, None, 1, {}), (ALL, "block", 0, {}), (Window(8), None, 1, {}), (Window(7), None, 0, {})),
        *((Window(8), None, 2, two), (Window(7), None, 1, two)),
        (Window(8), None, 1, two | {"pooled_window": Window(8)}),
    ):
        calls.clear()
        layer = TwoLevelAttention(8, 2, window=window, backend=backend, **pools).double()
        mask = torch.arange(9)[None] == 3
        out = layer(x, global_mask=mask)
        assert len(calls) == used
        layer.backend = "reference"
        torch.testing.assert_close(out, layer(x, global_mask=mask), atol=1e-12, rtol=0)
    calls.clear()
    TwoLevelAttention(8, 2, window=ALL, dropout=0.1).double().train()(x)
    band_attention(x[:, None], x[:, None], x[:, None], window=ALL)
    assert not calls


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_other_precisions(dtype):
    query, key, value = (x.detach() for x in tensors(2, 2, 700, 700, 16, dtype))
    padding = right_padding([700, 390], 700)
    out = sdpa.run(Call.of(query, key, value, window=ALL, key_padding_mask=padding))
    wide = [x.double() for x in (query, key, value)]
    expected = band_attention(*wide, window=ALL, key_padding_mask=padding, backend="reference")
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, atol=2 * torch.finfo(dtype).eps, rtol=2 * torch.finfo(dtype).eps)
