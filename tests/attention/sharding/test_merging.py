"""Attention to keys that ranks have parts of, and the bytes that it takes."""

import pytest
import torch

from fairseq_poolingformer.attention import DropoutAt, Window, band_attention
from fairseq_poolingformer.attention.sharding import merged_over_ranks
from tests.attention.sharding.ranks import assert_same, in_threads

B, H, T, D = 2, 2, 5, 4


def attend(query, key, value, padding, start=0, dropout=0.0, **arguments):
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
        out, lse = attend(*leaves, padding[:, start:stop], start, dropout, return_lse=True)
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
    out = attend(*leaves, padding, dropout=dropout)
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
