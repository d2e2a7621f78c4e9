"""Scores by distance, pair by pair, and those of causal models."""

import itertools
import math

import pytest
import torch

from fairseq_poolingformer.attention import RelativePositionBias, Window, band_attention
from fairseq_poolingformer.attention.call import Pairs
from fairseq_poolingformer.attention.score_terms.relative_bias import content_to_distance, distance_bias, log_span_mask
from tests.attention.calls import ON_CPU, assert_same, outputs_and_gradients, right_padding, tensors


def naive(table, distance):
    """``table[h, clamp(i − j, −k, k) + k]``, one pair after another."""
    k = table.size(1) // 2
    rows = [[table[:, max(-k, min(k, d)) + k] for d in row] for row in distance.tolist()]
    return torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)


@pytest.mark.parametrize("columns", [1, 3, 9, 41])
@pytest.mark.parametrize(
    "pairs",
    [
        Pairs(range(6), range(4), query_offset=2),  # by diagonals
        Pairs(range(1), range(9)),
        Pairs(range(9), range(1)),
        Pairs(range(0, 12, 3), range(1, 16, 3), query_offset=-4),
        Pairs(range(7), range(5), key_stride=2, key_offset=-3),  # pools: no diagonals of one distance
    ],
)
def test_scores_and_their_gradients(columns, pairs):
    table = torch.randn(2, columns, dtype=torch.float64, requires_grad=True)
    scores, expected = RelativePositionBias(table).scores(pairs), naive(table, pairs.distance(table.device))
    assert torch.equal(scores, expected)
    assert_same(scores, expected, table)


def test_pairs_that_differ_from_row_to_row():
    table, pairs = torch.randn(2, 7), Pairs(range(3), torch.tensor([[0, 9], [4, 0]]), query_offset=1)
    scores = RelativePositionBias(table).scores(pairs)
    assert scores.shape == (2, 2, 3, 2)
    for row, distance in enumerate(pairs.distance(table.device)):
        assert torch.equal(scores[row], naive(table, distance))


@pytest.mark.parametrize("shape", [(2, 4), (7,), (1, 2, 3)])
def test_a_table_without_a_middle_column_is_refused(shape):
    with pytest.raises(ValueError, match=r"table must be \(H, 2k \+ 1\)"):
        RelativePositionBias(torch.zeros(shape))


def leaf(*shape, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def weighted(weights, values):
    return sum(w / sum(weights) * x for w, x in zip(weights, values, strict=True))


def by_query(attend, q):
    batch, heads, queries, _ = q.shape
    return torch.stack([attend(*place) for place in itertools.product(*map(range, (batch, heads, queries)))]).view_as(q)


def transformer_xl(q, k, v, u, w, table, offset, dilations, left):
    """Dai et al. 2019 §3.3: A_ij = (a) + (b) + (c) + (d), query by query and key by key."""

    def attend(b, h, t):
        i, step = t + offset, dilations[h]
        keys = [j for j in range(max(0, i - left * step), i + 1) if (i - j) % step == 0]
        scores = [q[b, h, t] @ k[b, h, j] + q[b, h, t] @ table[h, i - j] for j in keys]
        scores = [x + u[h] @ k[b, h, j] + w[h] @ table[h, i - j] for x, j in zip(scores, keys, strict=True)]
        return weighted([torch.exp(x / math.sqrt(q.size(3))) for x in scores], [v[b, h, j] for j in keys])

    return by_query(attend, q)


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize(("dilations", "left"), [((1, 1), 4), ((1, 2), 3)])
@pytest.mark.usefixtures("small_blocks")
def test_relative_positions_are_transformer_xls(backend, dilations, left):
    (q, k, v), u, w, table = tensors(2, 2, 7, 11, 3), leaf(2, 3), leaf(2, 3, seed=6), leaf(2, 11, 3, seed=7)
    inputs, scale = [q, k, v, u, w, table], 3**-0.5
    terms = [content_to_distance(table, 4), distance_bias(scale * (table @ (w - u)[..., None])[..., 0])]
    window = Window(left, 0, dilations)
    out = band_attention(q + u[:, None], k, v, window=window, score_terms=terms, query_offset=4, backend=backend)
    assert_same(out, transformer_xl(*inputs, 4, dilations, left), inputs)


def adaptive_span(q, k, v, z, shared, offset, longest, ramp):
    """Sukhbaatar et al. 2019 §2.2 with GAA's span (its eq. 1): weights times m, divided by their sum."""

    def attend(b, h, t):
        i, span = t + offset, longest * (z[h] * (1 - shared) + shared)
        masks = [(ramp + span - (i - j)) / ramp for j in range(i + 1)]
        masks = [m if 0 <= m <= 1 else m.detach().clamp(0, 1) for m in masks]
        scores = [q[b, h, t] @ k[b, h, j] / math.sqrt(q.size(3)) for j in range(i + 1)]
        return weighted([m * torch.exp(x) for m, x in zip(masks, scores, strict=True)], v[b, h, : i + 1])

    return by_query(attend, q)


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize(("z", "shared"), [((0.11, 0.42), 0.07), ((0.0, 0.25), 0.0), ((0.0, 0.0), 0.5)])
@pytest.mark.usefixtures("small_blocks")
def test_adaptive_span_multiplies_and_renormalizes(backend, z, shared):
    """In the second and third case some masks are exactly 0 and 1: there the gradient passes, with every torch."""
    z = torch.tensor(z, dtype=torch.float64, requires_grad=True)
    shared = torch.tensor(shared, dtype=torch.float64, requires_grad=True)
    q, k, v = tensors(2, 2, 6, 14, 3)
    inputs = [q, k, v, z, shared]
    terms = [distance_bias(log_span_mask(12 * (z * (1 - shared) + shared), ramp=3, num_distances=14))]
    out = band_attention(q, k, v, window=Window(14, 0), score_terms=terms, query_offset=8, backend=backend)
    assert_same(out, adaptive_span(*inputs, 8, 12, 3), inputs)


def test_span_mask_by_hand():
    """Ramp 4, span 1: m is 1, 1, ¾, ½, ¼, 0 and hidden at distances 0 to 6, and its slope ¼ at 1 to 5."""
    span = torch.ones(1, dtype=torch.float64, requires_grad=True)
    mask = log_span_mask(span, ramp=4, num_distances=7)
    expected = torch.tensor([[1, 1, 3 / 4, 1 / 2, 1 / 4, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(mask.exp(), expected)
    (slope,) = torch.autograd.grad(mask, span, torch.tensor([[0.0, 0, 1, 1, 1, 0, 0]], dtype=torch.float64))
    torch.testing.assert_close(slope, torch.tensor([(4 / 3 + 2 + 4) / 4], dtype=torch.float64))
    mask = log_span_mask(span, ramp=4, num_distances=7).exp()
    for distance, expected in enumerate((0, 1, 1, 1, 1, 1, 0)):
        (slope,) = torch.autograd.grad(mask[0, distance], span, retain_graph=True)
        torch.testing.assert_close(slope, torch.full((1,), expected / 4, dtype=torch.float64))


def gradient_at_a_mask_of_0(backend, dtype, device="cpu"):
    """The gradient of spans that leave a mask of exactly 0, with scores of ±30: weights as small as 1e-20·e^-60."""
    inputs = [x.detach().to(device, torch.float16) for x in tensors(1, 2, 40, 40, 8)]
    inputs[0] *= 10
    span = torch.tensor([0.0, 8.0], device=device, requires_grad=True)
    x = [y.to(dtype).requires_grad_() for y in inputs]
    terms = [distance_bias(log_span_mask(span.to(torch.promote_types(dtype, torch.float32)), 16, 40))]
    out = band_attention(*x, window=Window(40, 0), score_terms=terms, backend=backend)
    return torch.autograd.grad((out.double() ** 2).sum(), span)[0]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float16, 0.03)])
def test_the_gradient_at_a_mask_of_exactly_0_fits_narrow_numbers(dtype, tolerance):
    expected = gradient_at_a_mask_of_0("reference", torch.float64)
    torch.testing.assert_close(gradient_at_a_mask_of_0("block", dtype), expected, atol=0, rtol=tolerance)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("rows", [31, 40])
def test_both_terms_in_blocks(rows):
    """A table may be longer than the text, or end before the window does where the text ends too."""
    table, span = leaf(2, rows, 4), torch.tensor([2.5, 17.0], dtype=torch.float64, requires_grad=True)
    inputs = tensors(2, 2, 30, 31, 4)
    arguments = {"window": Window(45, 0), "key_padding_mask": right_padding([31, 20], 31), "query_offset": 1}

    def run(backend):
        terms = [content_to_distance(table, 45), distance_bias(log_span_mask(span, 6, rows))]
        return band_attention(*inputs, score_terms=terms, backend=backend, **arguments)

    assert_same(run("block"), run("reference"), [*inputs, table, span])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_finite_where_a_weight_all_but_vanishes(dtype):
    inputs = tensors(2, 2, 40, 40, 16, dtype)
    # m is 1e-7 at distance 12: float16 would have it 0
    span = torch.tensor([4 + 1e-6, 30.0], requires_grad=True)
    table = torch.randn(2, 40, 16).to(dtype).requires_grad_()
    arguments = {"window": Window(40, 0), "backend": "block"}
    arguments["score_terms"] = [content_to_distance(table, 40), distance_bias(log_span_mask(span, 8, 40))]
    out, *grads = outputs_and_gradients(inputs, [span, table], **arguments)
    assert [grad.dtype for grad in grads] == [dtype, dtype, dtype, torch.float32, dtype]
    assert all(x.isfinite().all() for x in (out, *grads))
