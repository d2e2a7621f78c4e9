"""Attention over parts of the keys, merged to attention over all of them."""

import pytest
import torch

from fairseq_poolingformer.attention.merging import merge_softmax


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
