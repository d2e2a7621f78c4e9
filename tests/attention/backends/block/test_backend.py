"""The block backend where it differs from others: its memory, and float16."""

import torch

from fairseq_poolingformer.attention import Window, band_attention
from fairseq_poolingformer.attention.backends.block import backend as block_backend
from fairseq_poolingformer.attention.dropout import KeepMask
from tests.attention.calls import outputs_and_gradients, tensors


def test_long_input_needs_memory_for_its_outputs_only():
    """64k tokens: a dense score matrix of one head alone would take 16 GiB."""
    q, k, v = tensors(1, 1, 65_536, 65_536, 8, torch.float32)
    out = band_attention(q, k, v, window=Window(16), global_mask=torch.arange(65_536)[None] < 1, backend="block")
    out.sum().backward()
    assert torch.isfinite(k.grad).all()


def test_float16_scores_are_scaled_before_they_are_rounded(monkeypatch):
    """As on a GPU, which multiplies in float16: q·k of 80,000 is beyond float16, its scaled 10,000 is not."""
    monkeypatch.setattr(block_backend, "_matmul_dtype", lambda x: x.dtype)
    x = torch.full((1, 1, 20, 64), 35.0, dtype=torch.float16, requires_grad=True)
    out, *grads = outputs_and_gradients(
        [x, x.detach().requires_grad_(), x.detach().requires_grad_()], window=Window(3), backend="block"
    )
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(g).all() for g in grads)


def test_no_two_pairs_of_blocks_share_their_dropout(monkeypatch):
    """Neither in a lane, nor between windows, global keys, global queries, and heads of other dilations."""
    places, like = [], KeepMask.like
    monkeypatch.setattr(KeepMask, "like", lambda self, x, place=(): places.append(place) or like(self, x, place))
    query, key, value = tensors(1, 2, 1300, 1300, 4)
    global_mask, window = torch.arange(1300)[None] % 130 == 7, Window(600, dilation=(1, 2))
    out = band_attention(query, key, value, window=window, global_mask=global_mask, dropout_p=0.5, backend="block")
    forward = list(places)
    out.sum().backward()
    assert len(forward) == len(set(forward)) > 20
    assert sorted(places) == sorted(2 * forward)
