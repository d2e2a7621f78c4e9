"""Chunks of time: what stays in memory, and gradients of slices that overlap."""

from weakref import WeakValueDictionary

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window
from fairseq_poolingformer.attention.sharding import Shard
from fairseq_poolingformer.attention.sharding.chunks import Sliced, in_chunks
from tests.attention.sharding.ranks import in_threads


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


def test_slices_that_overlap_have_one_gradient_in_memory_at_a_time():
    alive, numbers = WeakValueDictionary(), []

    def note(grad):
        alive[id(grad)] = grad
        numbers.append(len(alive))

    def function(number, part):
        part.register_hook(note)
        return number * part

    x = torch.randn(6, requires_grad=True)
    sum(y.sum() for y in in_chunks(function, [1, 2, 3], [Sliced(x, 0, [range(6)] * 3)])).backward()
    assert x.grad.tolist() == [6.0] * 6
    assert set(numbers) == {1}


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
    """Beside the parameters: the input, Y, and pooled keys and values, half as large; without chunks, many more.

    But keys and values of level one are there once, those of global tokens behind them.
    """
    assert 7 < kept(num_tokens, None) < 12
    assert kept(num_tokens, 64) < 4


class Stack(torch.nn.Module):
    """An encoder of two layers, recomputed in the backward pass."""

    def __init__(self):
        super().__init__()
        levels = [{}, {"pooled_window": Window(9), "pooling": Pooling(5, 4)}]
        self.attentions = torch.nn.ModuleList(TwoLevelAttention(8, 2, window=Window(3), **level) for level in levels)
        self.feed = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 32), torch.nn.Linear(32, 8))

    def forward(self, x, shard):
        for attention in self.attentions:
            x = checkpoint(self.layer, attention, x, shard, use_reentrant=False)
        return x

    def layer(self, attention, x, shard):
        x = x + attention(shard.each_chunk(self.feed[0], x), shard=shard)
        return shard.each_chunk(lambda part: part + self.feed(part), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_stack_of_layers_in_chunks_and_in_parts(dtype):
    torch.manual_seed(0)
    stack = Stack().to(dtype)
    x, grad = torch.randn(2, 1, 40, 8, dtype=torch.float64).to(dtype)
    mask = torch.arange(40)[None] % 17 == 0

    def result(part, ranks=None, chunk_tokens=None):
        rows = slice(part.start, part.stop)
        shard = Shard.of(1, len(part), ranks=ranks, global_mask=mask[:, rows], chunk_tokens=chunk_tokens)
        given = x[:, rows].clone().requires_grad_()
        out = stack(given, shard)
        grads = torch.autograd.grad(out, [given, *stack.parameters()], grad[:, rows])
        return [out, *grads]

    expected, chunked = result(range(40)), result(range(40), chunk_tokens=7)
    of_ranks = in_threads(2, lambda ranks: result([range(0, 23), range(23, 40)][ranks.rank], ranks, 6))
    outs, xs, *parameters = zip(*of_ranks, strict=True)
    divided = [torch.cat(outs, 1), torch.cat(xs, 1), *(a + b for a, b in parameters)]
    tolerance = 1e-12 if dtype == torch.float64 else 0.1
    for found in (chunked, divided):
        for a, e in zip(found, expected, strict=True):
            torch.testing.assert_close(a, e, atol=tolerance * max(1.0, float(e.detach().abs().max())), rtol=0)
