"""A few queries attend to chunks as they attend to all tokens at once."""

import pytest
import torch

from fairseq_poolingformer.attention import Window, band_attention
from fairseq_poolingformer.attention.dropout_at import DropoutAt
from fairseq_poolingformer.attention.sharding import Shard
from fairseq_poolingformer.attention.sharding.places import Files, Place
from fairseq_poolingformer.attention.sharding.queries import attend_to_chunks

B, S, C, H, T = 2, 23, 8, 2, 3


def heads(x):
    return x.unflatten(-1, (H, -1)).permute(1, 2, 0, 3)


def results(x, query, weights, padding, dropout_p, chunk_tokens=None, place=None):
    """Two layers' outputs and logarithms, and the gradients of their source, queries and weights."""
    leaves = [t.clone().requires_grad_() for t in (x, query, *weights)]
    x, query, *weights = leaves
    shard = Shard.of(B, S, chunk_tokens=chunk_tokens, place=place).with_output(x, 0)
    found = []
    for number, pair in enumerate(zip(weights[::2], weights[1::2], strict=True)):

        def project(rows, pair=pair):
            return tuple(heads(rows @ weight) for weight in pair)

        arguments = {"dropout_p": dropout_p, "dropout_at": DropoutAt(number) if dropout_p else None}
        if chunk_tokens is None:
            masks = {"window": Window.unlimited(), "key_padding_mask": padding}
            found += band_attention(query, *project(x), **masks, **arguments, return_lse=True)
        else:
            sources = [shard.source_of(x, 0)]
            found += attend_to_chunks(shard, query, sources, project, padding=padding, dropout_p=dropout_p, seed=number)
    loss = sum((y.nan_to_num(neginf=0.0) * (n + 1)).sin().sum() for n, y in enumerate(found))
    return [*found, *torch.autograd.grad(loss, leaves)]


@pytest.mark.parametrize(
    ("dropout_p", "lengths", "chunk_tokens"), [(0.0, None, 7), (0.3, (23, 9), 5), (0.3, (5, 0), 11)]
)
def test_chunks_are_the_whole(dropout_p, lengths, chunk_tokens, tmp_path):
    torch.manual_seed(0)
    x, query = torch.randn(S, B, C).double(), torch.randn(B, H, T, C // H).double()
    weights = torch.randn(4, C, C).double()
    padding = None if lengths is None else torch.arange(S) >= torch.tensor(lengths)[:, None]
    expected = results(x, query, weights, padding, dropout_p)
    for place in (Place(), Files(tmp_path)):
        found = results(x, query, weights, padding, dropout_p, chunk_tokens, place)
        for a, e in zip(found, expected, strict=True):
            torch.testing.assert_close(a, e, atol=1e-12, rtol=1e-12)


def test_layers_share_one_gradient_and_each_chunk_is_projected_alone(tmp_path):
    x = torch.randn(S, B, C, requires_grad=True)
    shard = Shard.of(B, S, chunk_tokens=5, place=Files(tmp_path)).with_output(x, 0)
    longest, query = [], torch.randn(B, H, T, C // H)
    for _ in range(3):

        def project(rows):
            longest.append(len(rows))
            return heads(rows), heads(rows)

        query = query + attend_to_chunks(shard, query, [shard.source_of(x, 0)], project)[0]
    query.sum().backward()
    assert max(longest) == 5
    assert len(longest) == 2 * 3 * 5  # forward, and again in the backward pass
    assert shard.place.most == x.numel() * 4
