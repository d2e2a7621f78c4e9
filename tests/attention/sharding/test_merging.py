"""Attention over parts of the keys, merged to attention over all of them."""

import pytest
import torch

from fairseq_poolingformer.attention import DropoutAt, Window, band_attention
from fairseq_poolingformer.attention.sharding import merged_over_ranks
from fairseq_poolingformer.attention.sharding.exchange import merge_softmax
from tests.attention.sharding.ranks import assert_same, in_threads


def attend(scores, value, keys):
    """Output and log-sum-exp of some keys; NaN and -inf where none of them is seen."""
    scores = scores[..., keys]
    return scores.softmax(-1) @ value[..., keys, :], scores.logsumexp(-1)


@pytest.fixture
def scores_and_value():
    generator = torch.Generator().manual_seed(0)
    scores = 9 * torch.randn(2, 3, 7, 20, generator=generator, dtype=torch.float64)
    return scores, torch.randn(2, 3, 20, 5, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("ends", [(20,), (1, 20), (4, 9, 20)])
def test_the_parts_merged_are_the_whole(scores_and_value, ends):
    scores, value = scores_and_value
    scores[1, 0, 2, :4] = -torch.inf  # a part of which a query sees nothing, whose output is NaN
    starts = (0, *ends[:-1])
    parts = [attend(scores, value, slice(*part)) for part in zip(starts, ends, strict=True)]
    out, lse = merge_softmax(parts)
    expected, expected_lse = attend(scores, value, slice(None))
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(lse, expected_lse, atol=1e-12, rtol=0)


def test_a_query_that_sees_nothing_gets_zeros(scores_and_value):
    scores, value = scores_and_value
    scores[0, 1, 3] = -torch.inf
    out, lse = merge_softmax([attend(scores, value, slice(8)), attend(scores, value, slice(8, 20))])
    assert (out[0, 1, 3] == 0).all()
    assert lse[0, 1, 3] == -torch.inf
    assert out.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_are_merged_in_float32(scores_and_value, dtype):
    scores, value = scores_and_value
    parts = [attend(scores, value, slice(8)), attend(scores, value, slice(8, 20))]
    rounded = [(out.to(dtype), lse.float()) for out, lse in parts]
    out, lse = merge_softmax(rounded)
    assert out.dtype == lse.dtype == torch.float32
    expected, _ = merge_softmax([(out.double(), lse.double()) for out, lse in rounded])
    torch.testing.assert_close(out, expected.float(), atol=1e-5, rtol=0)


def test_large_scores_do_not_overflow():
    out, value = merge_softmax([(torch.ones(1, 2), torch.tensor([3e4])), (torch.zeros(1, 2), torch.tensor([-3e4]))])
    assert torch.equal(out, torch.ones(1, 2))
    assert torch.equal(value, torch.tensor([3e4]))


def test_gradients_are_finite_where_a_query_sees_nothing():
    torch.manual_seed(0)
    outs = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    logs = torch.randn(2, 3, dtype=torch.float64)
    logs[0, 1] = logs[:, 2] = -torch.inf
    logs.requires_grad_()
    out, lse = merge_softmax(list(zip(outs, logs, strict=True)))
    grads = torch.autograd.grad([out.sum(), lse.where(lse.isfinite(), 0.0).sum()], [outs, logs])
    assert all(grad.isfinite().all() for grad in grads)
    assert (grads[1][:, 2] == 0).all()
    assert torch.equal(grads[0][1, 1], torch.ones(4, dtype=torch.float64))


B, H, T, D = 2, 2, 5, 4


def attend_to_part(query, key, value, padding, start=0, dropout=0.0, **arguments):
    at = DropoutAt(7, key=start) if dropout else None
    arguments |= {"key_padding_mask": padding, "dropout_p": dropout, "dropout_at": at}
    return band_attention(query, key, value, window=Window.unlimited(), **arguments)


def tensors(length, dtype=torch.float64):
    torch.manual_seed(0)
    return [torch.randn(B, H, n, D, dtype=torch.float64).to(dtype) for n in (T, length, length, T)]


def divided(size, length, padding, dtype=torch.float64, dropout=0.0):
    """Of the ranks: outputs, and gradients where each rank's loss takes every ``size``-th query; and bytes."""
    query, key, value, grad = tensors(length, dtype)
    ends = [(length - size) * n // size + n for n in range(size + 1)]

    def function(ranks):
        start, stop = ends[ranks.rank : ranks.rank + 2]
        leaves = [x.clone().requires_grad_() for x in (query, key[:, :, start:stop], value[:, :, start:stop])]
        out, lse = attend_to_part(*leaves, padding[:, start:stop], start, dropout, return_lse=True)
        out, lse = merged_over_ranks(ranks, out, lse)
        own = torch.zeros(T, 1, dtype=dtype)
        own[ranks.rank :: size] = 1
        grads = torch.autograd.grad(out.to(dtype), leaves, own * grad)
        return out, lse, *grads, ranks.sent

    outs, logs, queries, keys, values, sent = zip(*in_threads(size, function), strict=True)
    for others in (outs, logs):
        assert all(torch.equal(other, others[0]) for other in others), "the same bits on all ranks"
    return [outs[0], sum(queries), torch.cat(keys, 2), torch.cat(values, 2)], sent


LENGTHS = {"none": (23, 23), "ranks of padding alone": (23, 3), "nothing but padding": (0, 9), "no padding": (30, 30)}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_ranks_attend_to_all_keys(size, lengths, dropout):
    padding = torch.arange(30) >= torch.tensor(lengths)[:, None]
    query, key, value, grad = tensors(30)
    leaves = [x.requires_grad_() for x in (query, key, value)]
    out = attend_to_part(*leaves, padding, dropout=dropout)
    expected = [out, *torch.autograd.grad(out, leaves, grad)]
    actual, _ = divided(size, 30, padding, dropout=dropout)
    assert_same([x.detach() for x in actual], [x.detach() for x in expected])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_bytes_do_not_depend_on_the_source(dtype):
    """Forward and backward, to each other rank: queries × width in their dtype, and a logarithm for each head."""
    wide = 8 if dtype == torch.float64 else 4
    for length in (4, 40, 400):
        _, sent = divided(4, length, torch.zeros(B, length, dtype=torch.bool), dtype)
        assert set(sent) == {2 * 3 * B * H * T * (D * dtype.itemsize + wide)}
