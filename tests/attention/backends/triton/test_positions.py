"""Scores of content and position in the Triton kernels, against the reference; run as ``test_backend.py`` is."""

from dataclasses import replace

import pytest
import torch

from fairseq_poolingformer.attention import DisentangledPosition, RelativePositionBias, Window, band_attention
from fairseq_poolingformer.attention.backends.triton import arguments
from fairseq_poolingformer.attention.call import term_tensors
from fairseq_poolingformer.attention.score_terms.relative_bias import content_to_distance, distance_bias, log_span_mask
from tests.attention.backends.triton.test_backend import (
    DEVICE,
    INTERPRETED,
    compare,
    on_device,
    pass_in_the_interpreter,
    runs_kernels,
    terms_on_device,
    use_small_blocks,
)
from tests.attention.calls import outputs_and_gradients, right_padding, tensors
from tests.attention.score_terms.test_disentangled import TABLES, tables


@pytest.mark.full
def test_in_the_interpreter():
    pass_in_the_interpreter(__file__)


@pytest.fixture
def blocks(request, monkeypatch):
    """Small ones with ranges in splits; of more queries than keys, or fewer."""
    if request.param == "small":
        use_small_blocks(monkeypatch)
    else:
        shape = (16, 32) if request.param == "wide" else (32, 16)
        monkeypatch.setattr(arguments, "tile_shape", lambda *_: arguments.TileShape(*shape, 4, 1))


@runs_kernels
@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(
    ("blocks", "window", "k"),
    [
        ("small", Window(5), 5),
        ("small", Window.unlimited(), 6),
        ("wide", Window(3, 20), 40),
        ("wide", Window(3, 2, (1, 3)), 9),
        ("tall", Window(3, 20), 40),
        ("tall", Window.unlimited(), 6),
    ],
    indirect=["blocks"],
)
def test_windows_narrower_and_wider_than_the_tables(window, k):
    inputs, term = tensors(1, 2, 43, 37, 5), DisentangledPosition(**tables(2, k, 1, 5, TABLES[:2]))
    compare(inputs, [term], window=window, key_padding_mask=right_padding([30], 37), query_offset=-3)


@runs_kernels
@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(
    ("blocks", "window", "offset"),
    [("small", Window(4), 0), ("wide", Window(4), 0), ("tall", Window(2, 1, (2, 1)), 7)],
    indirect=["blocks"],
)
def test_global_tokens(window, offset):
    """Rows of several and of a padded one; coarse rows that many tokens share, and outermost ones."""
    global_mask = torch.zeros(2, 29, dtype=torch.bool)
    global_mask[0, [0, 9, 10, 28]] = True
    global_mask[1, 25] = True
    term = DisentangledPosition(**tables(2, 4, 5, 4), global_bucket=3)
    compare(
        tensors(2, 2, 19, 29, 4),
        [term],
        window=window,
        global_mask=global_mask,
        key_padding_mask=right_padding([29, 21], 29),
        query_offset=offset,
    )


@runs_kernels
def test_many_global_tokens_and_many_coarse_rows():
    """More global tokens than a block has, and pairs of a tile that take rows of several pieces of a table."""
    global_mask = torch.arange(36)[None] % 2 == 0
    term = DisentangledPosition(**tables(1, 2, 24, 4), global_bucket=1)
    compare(tensors(1, 1, 36, 36, 4), [term], window=Window(2), global_mask=global_mask)


@runs_kernels
def test_global_tokens_without_coarse_tables():
    """In a window without limits they share the fine ones."""
    term = DisentangledPosition(**tables(1, 7, 1, 4, TABLES[:2]))
    global_mask = torch.arange(23)[None] % 20 == 0
    compare(tensors(1, 1, 23, 23, 4), [term], window=Window.unlimited(), global_mask=global_mask)


@runs_kernels
@pytest.mark.parametrize(("name", "trained"), [("c2p", True), ("p2c", True), ("p2c", False)])
def test_one_product_and_tables_that_are_not_trained(name, trained):
    by_name = tables(2, 6, 3, 4, (name, f"global_{name}"))
    by_name = {n: x.detach().requires_grad_(trained) for n, x in by_name.items()}
    terms = [DisentangledPosition(**by_name, global_bucket=9)]
    terms.append(RelativePositionBias(torch.linspace(-1, 1, 5)[None].requires_grad_()))
    compare(tensors(1, 2, 17, 17, 4), terms, window=Window(4), global_mask=torch.arange(17)[None] == 2)


@runs_kernels
@pytest.mark.parametrize("rows", [21, 30])
def test_terms_of_language_models(rows):
    """Transformer-XL's scores and adaptive spans, with a memory, and tables as long as the window and shorter."""
    table = torch.randn(2, rows, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    spans = log_span_mask(torch.tensor([2.5, 17.0], dtype=torch.float64), 6, rows)
    terms = [
        replace(term, **{name: x.requires_grad_() for name, x in term_tensors(term).items()})
        for term in (content_to_distance(table, 29), distance_bias(spans))
    ]
    padding = right_padding([30, 27], 30)
    compare(tensors(2, 2, 20, 30, 4), terms, window=Window(29, 0), key_padding_mask=padding, query_offset=10)


@runs_kernels
@pytest.mark.parametrize("layout", ["a projection's", "within others"])
def test_tables_in_any_memory(layout):
    """Rows of one head between those of others; and numbers around a table that are never read."""
    by_name = tables(1 if layout == "within others" else 2, 5, 3, 4)

    def placed(x):
        if layout == "within others":
            return torch.nn.functional.pad(x, (0, 0, 8, 8), value=torch.nan)[:, 8:-8]
        return x.transpose(0, 1).contiguous().transpose(0, 1)

    term = DisentangledPosition(**{n: placed(x.detach().float()).requires_grad_() for n, x in by_name.items()})
    heads = term.c2p.size(0)
    query, key, value = (on_device(x, torch.float32) for x in tensors(1, heads, 20, 20, 4))
    arguments = {"window": Window(5), "global_mask": torch.arange(20, device=DEVICE)[None] == 19}
    same = DisentangledPosition(**{n: on_device(x, torch.float32).clone() for n, x in by_name.items()})
    term = replace(term, **{n: x.to(DEVICE) for n, x in term_tensors(term).items()})
    results = [
        outputs_and_gradients([query, key, value], term_tensors(t).values(), score_terms=[t], backend=name, **arguments)
        for t, name in ((term, "triton"), (same, "reference"))
    ]
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@runs_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_error_is_at_most_twice_that_of_plain_pytorch(dtype):
    if dtype == torch.bfloat16 and INTERPRETED:
        pytest.skip("Triton's interpreter does not multiply bfloat16")
    inputs = [on_device(x, dtype) for x in tensors(1, 1, 81, 81, 64)]
    term = DisentangledPosition(**tables(1, 24, 4, 64), global_bucket=20)
    arguments = {"window": Window(24), "global_mask": torch.arange(81, device=DEVICE)[None] < 1, "scale": 0.07}

    def passes(backend, dtype):
        moved, wanted = terms_on_device(terms_on_device([term], inputs[0].dtype)[0], dtype)
        leaves = [on_device(x, dtype) for x in inputs]
        return outputs_and_gradients(leaves, wanted, score_terms=moved, backend=backend, **arguments)

    golden, plain, actual = (
        passes(*which) for which in (("reference", torch.float64), ("reference", dtype), ("triton", dtype))
    )
    for a, p, g in zip(actual, plain, golden, strict=True):
        assert a.dtype == dtype
        assert (a - g).abs().max() <= 2 * (p - g).abs().max() + 1e-6


@runs_kernels
@pytest.mark.parametrize("head_dim", [16, 80])
def test_head_dimensions(head_dim):
    term = DisentangledPosition(**tables(1, 9, 3, head_dim), global_bucket=13)
    global_mask = torch.arange(33)[None] < 1
    compare(tensors(1, 1, 33, 33, head_dim), [term], window=Window(9), global_mask=global_mask, scale=0.1)


@runs_kernels
@pytest.mark.parametrize(
    ("terms", "head_dim", "word"),
    [
        (2, 4, "one DisentangledPosition, the call has 2"),
        (1, 129, "head dimensions up to 128 in torch.float32, got 129"),
    ],
)
def test_what_it_cannot_run_is_named(terms, head_dim, word):
    x = torch.zeros(1, 1, 4, head_dim, device=DEVICE)
    term = DisentangledPosition(torch.zeros(1, 2, head_dim, device=DEVICE))
    with pytest.raises(ValueError, match=word):
        band_attention(x, x, x, window=Window(1), score_terms=[term] * terms, backend="triton")
