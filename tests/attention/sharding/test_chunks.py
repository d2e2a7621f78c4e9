"""Chunks of time: what stays in memory, and gradients of slices that overlap."""

import tempfile
from weakref import WeakValueDictionary

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch.utils.checkpoint import checkpoint

from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window
from fairseq_poolingformer.attention.sharding import Shard, chunks
from fairseq_poolingformer.attention.sharding.chunks import Source, in_chunks
from fairseq_poolingformer.attention.sharding.places import Files, HostMemory, Place
from tests.attention.sharding.ranks import assert_same, in_threads, joined
from tests.attention.sharding.test_layer import divisions, documents, layers

DOCUMENT = ("x", "grad", "global_mask", "key_padding_mask")
LEVELS = [{}, {"pooled_window": Window(9), "pooling": Pooling(5, 4)}]


def test_gradients_of_overlapping_slices_and_of_shared_tensors():
    x, y = torch.randn(2, 10, 3, dtype=torch.float64, requires_grad=True), torch.randn(3, dtype=torch.float64)
    y.requires_grad_()
    rows = [range(0, 5), range(3, 8), range(7, 10)]
    own = [range(0, 5), range(5, 7), range(7, 10)]

    def function(number, part, shared):
        found = number * part.square() * shared
        return found[:, {1: slice(None), 2: slice(2, 4), 3: slice(None)}[number]], found.sum(1)

    source = Source(x, 1, Place())
    (whole,), others = in_chunks(function, [1, 2, 3], [(source, rows)], y, results=[(1, own)], place=Place())
    expected = [function(n, x[:, r.start : r.stop], y) for n, r in zip([1, 2, 3], rows, strict=True)]
    wanted = [torch.cat([e[0] for e in expected], 1), *(e[1] for e in expected)]
    found = [whole, *(other for (other,) in others)]
    grads = [torch.randn_like(e) for e in wanted]
    for a, e in zip(found, wanted, strict=True):
        assert torch.equal(a, e)
    for again in (True, False):  # a second backward pass gives the same
        actual = torch.autograd.grad(found, [x, y], grads, retain_graph=again)
        for a, e in zip(actual, torch.autograd.grad(wanted, [x, y], grads, retain_graph=again), strict=True):
            torch.testing.assert_close(a, e)


def test_slices_that_overlap_have_one_gradient_in_memory_at_a_time():
    alive, numbers = WeakValueDictionary(), []

    def note(grad):
        alive[id(grad)] = grad
        numbers.append(len(alive))

    def function(number, part):
        part.register_hook(note)
        return (number * part,)

    x = torch.randn(6, requires_grad=True)
    _, others = in_chunks(function, [1, 2, 3], [(Source(x, 0, Place()), [range(6)] * 3)], place=Place())
    sum(y.sum() for (y,) in others).backward()
    assert x.grad.tolist() == [6.0] * 6
    assert set(numbers) == {1}


@pytest.mark.parametrize("place", [Place, HostMemory, Files])
def test_chunks_pass_one_gradient_of_a_result_on_without_copies(place, monkeypatch, tmp_path):
    place, seen = place(*{HostMemory: [torch.device("cpu")], Files: [tmp_path]}.get(place, [])), set()
    before = chunks._Put.backward
    monkeypatch.setattr(
        chunks._Put,
        "backward",
        staticmethod(lambda ctx, grad: seen.add(grad.data_ptr()) or before(ctx, grad)),
    )
    shard, weight = Shard.of(1, 12, chunk_tokens=4, place=place), torch.ones(4, requires_grad=True)
    x = shard.by_chunk(lambda chunk: weight * torch.ones(1, len(chunk), 4))
    shard.each_chunk(lambda part: 2 * part, x).backward(torch.ones(1, 12, 4))
    assert weight.grad.tolist() == [24.0] * 4
    assert len(seen) == 2  # of both results


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
    """Encoder layers whose norms come before or after, each recomputed in the backward pass or not."""

    def __init__(self, layers, norm_first=True, recomputed=True, dropout=0.0):
        super().__init__()
        self.attentions = torch.nn.ModuleList(TwoLevelAttention(8, 2, **{"dropout": dropout, **x}) for x in layers)
        self.norm, self.last = torch.nn.LayerNorm(8), torch.nn.LayerNorm(8)
        self.feed = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))
        self.norm_first, self.recomputed = norm_first, recomputed

    def forward(self, x, shard=None, **masks):
        for attention in self.attentions:
            if self.recomputed:
                x = checkpoint(self.layer, attention, x, shard, masks, use_reentrant=False)
            else:
                x = self.layer(attention, x, shard, masks)
        return x

    def layer(self, attention, x, shard, masks):
        before = self.norm if self.norm_first else None
        if shard is None:
            return self.rest(None, attention(before(x) if before else x, **masks), x)
        return shard.attend(attention, x, before=before, after=self.rest)

    def rest(self, chunk, attended, x):
        x = x + attended
        return x + self.feed(self.last(x)) if self.norm_first else self.last(x + self.feed(self.norm(x)))


def results(stack, document, part, ranks=None, seed=None, masks=None, **division):
    """Output and gradients of a part of a document, or with ``masks`` of all of it without a shard."""
    x, grad, global_mask, padding = document
    rows = slice(part.start, part.stop)
    given = x[:, rows].clone().requires_grad_()
    if masks is None:
        masks = [None if mask is None else mask[:, rows] for mask in (global_mask, padding)]
        named = {"global_mask": masks[0], "key_padding_mask": masks[1]}
        masks = {"shard": Shard.of(x.size(0), len(part), ranks=ranks, **named, **division)}
    if seed is not None:
        torch.manual_seed(seed)
    out = stack(given, **masks)
    leaves = [given, *stack.parameters()]
    grads = torch.autograd.grad(out, leaves, grad[:, rows], allow_unused=True)
    return [
        out.detach().clone(),
        *(torch.zeros_like(a) if g is None else g for a, g in zip(leaves, grads, strict=True)),
    ]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_stack_of_layers_in_chunks_and_in_parts(dtype):
    torch.manual_seed(0)
    stack = Stack([{"window": Window(3), **level} for level in LEVELS]).to(dtype)
    x, grad = torch.randn(2, 1, 40, 8, dtype=torch.float64).to(dtype)
    document = x, grad, torch.arange(40)[None] % 17 == 0, None
    expected = results(stack, document, range(40))
    chunked = results(stack, document, range(40), chunk_tokens=7)
    of_ranks = in_threads(
        2, lambda ranks: results(stack, document, [range(0, 23), range(23, 40)][ranks.rank], ranks, chunk_tokens=6)
    )
    tolerance = 1e-12 if dtype == torch.float64 else 0.1
    for found in (chunked, joined(of_ranks)):
        assert_same(found, expected, tolerance)


@settings(max_examples=max(15, settings.default.max_examples // 8))
@given(data=st.data())
def test_random_stacks_in_chunks_in_parts_and_whole(data):
    torch.manual_seed(data.draw(st.integers(0, 99)))
    num_tokens, kinds = data.draw(st.integers(1, 30)), [data.draw(layers()) for _ in range(2)]
    dropout = data.draw(st.sampled_from([0.0, 0.3]))
    stack = Stack(kinds, data.draw(st.booleans()), data.draw(st.booleans()), dropout).double()
    drawn = data.draw(documents(kinds[0] | {"separate_global_projections": True}, num_tokens))
    x, grad, *masks = (drawn[name] for name in DOCUMENT)
    document, parts = (x, grad, *masks), data.draw(divisions(num_tokens, 4))
    seed, sizes = 5, [len(part) for part in parts]
    whole = results(stack, document, range(num_tokens), seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        place = data.draw(st.sampled_from([Place(), HostMemory(torch.device("cpu")), Files(folder)]))
        chunked = results(stack, document, range(num_tokens), seed=seed, chunk_tokens=sizes, place=place)
    assert_same(chunked, whole)
    if dropout == 0.0:
        named = dict(zip(DOCUMENT[2:], masks, strict=True))
        assert_same(whole, results(stack, document, range(num_tokens), masks=named))
        divided = joined(in_threads(len(parts), lambda ranks: results(stack, document, parts[ranks.rank], ranks)))
        if masks[0] is None:  # whose rows are merged by threes or by tens, which round differently
            assert torch.equal(divided[0], chunked[0])
        assert_same(divided, chunked)
