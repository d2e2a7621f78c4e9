"""Chunks of time: what stays in memory, and gradients of slices that overlap."""

import pytest
import torch

from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window
from fairseq_poolingformer.attention.sharding import Shard
from fairseq_poolingformer.attention.sharding.chunks import Sliced, in_chunks


def test_gradients_of_overlapping_slices_and_of_shared_tensors():
    x, y = torch.randn(2, 10, 3, dtype=torch.float64, requires_grad=True), torch.randn(3, dtype=torch.float64)
    y.requires_grad_()
    rows = [range(0, 5), range(3, 8), range(7, 10)]

    def function(number, part, shared):
        return number * part.square() * shared

    results = in_chunks(function, [1, 2, 3], [Sliced(x, 1, rows)], y)
    expected = [n * x[:, r.start : r.stop].square() * y for n, r in zip([1, 2, 3], rows, strict=True)]
    grads = [torch.randn_like(e) for e in expected]
    for a, e in zip(results, expected, strict=True):
        assert torch.equal(a, e)
    actual, wanted = torch.autograd.grad(results, [x, y], grads), torch.autograd.grad(expected, [x, y], grads)
    for a, e in zip(actual, wanted, strict=True):
        torch.testing.assert_close(a, e)


def kept(num_tokens, chunk_tokens):
    """Numbers that a layer's graph keeps, and the most that a chunk's function makes at once, in units of the input."""
    layer = TwoLevelAttention(16, 2, window=Window(4), pooled_window=Window(16), pooling=Pooling(5, 4))
    x = torch.randn(1, num_tokens, 16, requires_grad=True)
    mask = torch.arange(num_tokens)[None] == 0
    storages = {}

    def pack(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = layer(x, shard=Shard.of(1, num_tokens, global_mask=mask, chunk_tokens=chunk_tokens))
    assert out.requires_grad
    return sum(storages.values()) / (4 * x.numel())


@pytest.mark.parametrize("num_tokens", [512, 2048])
def test_chunks_keep_little_more_than_inputs_and_outputs(num_tokens):
    """Beside the parameters: the input, Y, and pooled keys and values, half as large; without chunks, many more."""
    assert kept(num_tokens, None) > 7
    assert kept(num_tokens, 64) < 4
