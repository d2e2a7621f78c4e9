"""A few queries' attention to all tokens, chunk after chunk: a decoder's to the output of the encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_poolingformer.attention.dropout_at import DropoutAt
from fairseq_poolingformer.attention.functional import band_attention
from fairseq_poolingformer.attention.merging import merge_softmax
from fairseq_poolingformer.attention.patterns import Window
from fairseq_poolingformer.attention.sharding.chunks import Source, computed


def attend_to_chunks(
    shard: Any,
    query: Tensor,
    sources: list[Source],
    project: Callable[..., tuple[Tensor, Tensor]],
    *,
    padding: Tensor | None = None,
    dropout_p: float = 0.0,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """One softmax over the tokens of all chunks, whose keys and values are there one chunk at a time, in both passes.

    Args:
        shard: this process's part, in chunks.
        query: (B, H, T, D).
        sources: arrays with a row for each of its tokens.
        project: a chunk's keys and values (B, H, chunk, D) from its rows.
        padding: (B, tokens) bool, True at padding.
        dropout_p: probability of dropping a weight.
        seed: of dropout.

    Returns:
        The output (B, H, T, D) and its logarithm (B, H, T), as :func:`merge_softmax` gives them.
    """
    whole, hidden = _Whole(), None if padding is None else Source(padding, 1, start=shard.part.start)

    def of_chunk(chunk: range, *given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        *rows, q = given
        part = band_attention(
            q,
            *project(*rows),
            window=Window.unlimited(),
            key_padding_mask=None if hidden is None else hidden.rows(chunk),
            dropout_p=dropout_p,
            dropout_at=DropoutAt(seed, key=chunk.start) if dropout_p else None,
            return_lse=True,
        )
        return _Part.apply(whole, *part)

    merged: list[tuple[Tensor, Tensor]] = []
    links: list[Tensor] = []
    slices = [(source, shard.chunks) for source in sources]
    for out, lse, link in computed(of_chunk, shard.chunks, slices, query, place=shard.place_of_chunks):
        merged = [merge_softmax([*merged, (out, lse)])]
        links.append(link)
    ((whole.out, whole.lse),) = merged
    return _Merge.apply(whole, *links)


class _Whole:
    """The output and its logarithm over all chunks, and in the backward pass their gradients."""

    out: Tensor
    lse: Tensor
    grads: tuple[Tensor, Tensor]


class _Part(torch.autograd.Function):
    """A chunk's output and logarithm, and a number that links them to the whole, whose gradients it divides.

    ``out = Σ exp(lse_p − lse)·out_p`` gives ``exp(lse_p − lse)`` of the output's gradient g to out_p, and
    ``exp(lse_p − lse)·(g·(out_p − out) + the logarithm's gradient)`` to lse_p: no chunk needs another one's.
    """

    @staticmethod
    def forward(ctx, whole: _Whole, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ctx.whole = whole
        ctx.save_for_backward(out, lse)
        out, lse = out.detach(), lse.detach()
        ctx.mark_non_differentiable(out, lse)
        return out, lse, lse.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx, *_: Tensor):
        (out, lse), whole = ctx.saved_tensors, ctx.whole
        grad_out, grad_lse = whole.grads
        seen = whole.lse != -torch.inf
        share = (lse - whole.lse.where(seen, 0.0)).exp() * seen
        of_lse = share * ((grad_out * (out.to(grad_out.dtype) - whole.out)).sum(-1) + grad_lse)
        return None, (share.unsqueeze(-1) * grad_out).to(out.dtype), of_lse.to(lse.dtype)


class _Merge(torch.autograd.Function):
    @staticmethod
    def forward(ctx, whole: _Whole, *links: Tensor) -> tuple[Tensor, Tensor]:
        ctx.whole, ctx.forms = whole, [(link.dtype, link.device) for link in links]
        return whole.out.view_as(whole.out), whole.lse.view_as(whole.lse)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor):
        ctx.whole.grads = grads
        return None, *(torch.zeros((), dtype=dtype, device=device) for dtype, device in ctx.forms)
