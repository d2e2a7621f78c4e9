"""Ranks that are threads of one process, and what a document's parts compute in them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

from fairseq_poolingformer.attention import Rotary
from fairseq_poolingformer.attention.sharding import Ranks, Shard


class ThreadRanks(Ranks):
    """A rank among threads, which counts the bytes that it sends and gets."""

    def __init__(self, rank, size, board, barrier):
        self.rank, self.size, self.board, self.barrier = rank, size, board, barrier
        self.sent = self.got = 0

    def swap(self, sent, sizes):
        self.sent += sum(len(x) for x in sent)
        self.got += sum(sizes)
        self.board[self.rank] = sent
        self.barrier.wait(60)
        received = [self.board[rank][self.rank] for rank in range(self.size)]
        assert [len(x) for x in received] == sizes
        self.barrier.wait(60)
        return received


def in_threads(size, function):
    """``function(ranks)`` in as many threads, which exchange with each other; the results in their order."""
    board, barrier = [None] * size, threading.Barrier(size)

    def run(rank):
        try:
            return function(ThreadRanks(rank, size, board, barrier))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as threads:
        futures = [threads.submit(run, rank) for rank in range(size)]
        errors = [error for future in futures if (error := future.exception())]
        for error in sorted(errors, key=lambda e: isinstance(e, threading.BrokenBarrierError)):
            raise error
        return [future.result() for future in futures]


def of_part(layer, document, part, ranks=None, seed=None):
    """Output and gradients of a part of a document in one rank: of the input, and of the layer's parameters.

    ``document`` has the whole input ``x`` (B, T, C), the gradient of the output ``grad``, the masks, ``terms``, a
    function of the tensors that it names, and ``rotary``.
    """
    rows = slice(part.start, part.stop)
    masks = {
        name: None if document[name] is None else document[name][:, rows]
        for name in ("global_mask", "key_padding_mask")
    }
    x = document["x"][:, rows].detach().clone().requires_grad_()
    shard = Shard.of(x.size(0), len(part), ranks=ranks, **masks)
    if seed is not None:
        torch.manual_seed(seed)
    tensors = [t.detach().clone().requires_grad_() for t in document.get("tensors", [])]
    terms = document["terms"](*tensors) if tensors else ()
    out = layer(x, score_terms=terms, shard=shard, **rotary_of(document, layer, shard))
    leaves = [x, *layer.parameters(), *tensors]
    grads = torch.autograd.grad(out, leaves, document["grad"][:, rows], allow_unused=True)
    grads = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads, strict=True)]
    return [out.detach(), *grads]


def rotary_of(document, layer, shard):
    """The document's rotary positions, of a part."""
    if document.get("rotary") is None:
        return {}
    pooling = getattr(layer, "layer", layer).pooling
    pools = range(0) if pooling is None else shard.pools(pooling)
    rows = [*shard.part, *(shard.length + pool for pool in pools)]
    return {"rotary": Rotary(*(angles[:, rows] for angles in (document["rotary"].cos, document["rotary"].sin)))}


def whole(layer, document):
    """The same of the whole document, without a shard."""
    masks = {name: document[name] for name in ("global_mask", "key_padding_mask")}
    x = document["x"].detach().clone().requires_grad_()
    tensors = [t.detach().clone().requires_grad_() for t in document.get("tensors", [])]
    rotary = document.get("rotary")
    out = layer(x, score_terms=document["terms"](*tensors) if tensors else (), rotary=rotary, **masks)
    leaves = [x, *layer.parameters(), *tensors]
    grads = torch.autograd.grad(out, leaves, document["grad"], allow_unused=True)
    return [out.detach(), *(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads, strict=True))]


def joined(results):
    """Of the ranks' results one: outputs and input gradients side by side, the parameters' gradients added."""
    outs, xs, *others = zip(*results, strict=True)
    return [torch.cat(outs, 1), torch.cat(xs, 1), *(torch.stack(x).sum(0) for x in others)]


def assert_same(actual, expected, tolerance=1e-12):
    for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
        error = (a - e).abs().max() / e.abs().max().clamp(min=1.0)
        assert error <= tolerance, f"tensor {number} of {('out', 'x')[number] if number < 2 else 'parameters'}: {error}"
