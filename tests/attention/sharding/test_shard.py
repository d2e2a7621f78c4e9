"""What a shard knows of the others, and what it refuses."""

import pytest
import torch

from fairseq_poolingformer.attention import (
    DisentangledPosition,
    Pooling,
    RelativePositionBias,
    Rotary,
    TwoLevelAttention,
    Window,
)
from fairseq_poolingformer.attention.sharding import Shard
from tests.attention.sharding.ranks import in_threads


def shards(masks, padding):
    def make(ranks):
        mask, padded = masks[ranks.rank], padding[ranks.rank]
        return Shard.of(2, mask.size(1), ranks=ranks, global_mask=mask, key_padding_mask=padded)

    return in_threads(len(masks), make)


def test_global_tokens_of_all_ranks_in_the_documents_order():
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[0, [1, 4, 8]] = mask[1, [7]] = True
    padding = torch.arange(9) >= torch.tensor([9, 6])[:, None]
    found = shards([mask[:, :4], mask[:, 4:5], mask[:, 5:]], [None, None, padding[:, 5:]])
    for rank, shard in enumerate(found):
        assert shard.part == [range(0, 4), range(4, 5), range(5, 9)][rank]
        assert shard.tokens.position.tolist() == [[1, 4, 8], [7, -1, -1]]
        assert shard.tokens.hidden.tolist() == [[False] * 3, [True] * 3]
        assert shard.tokens.counts == (1, 1, 1)
        assert torch.equal(shard.tokens.among(range(2, 9)), mask[:, 2:])
        assert torch.equal(shard.padding, padding[:, shard.part.start : shard.part.stop])


def test_no_rank_with_padding_or_global_tokens():
    none = torch.zeros(2, 3, dtype=torch.bool)
    for shard in shards([none, none], [None, None]):
        assert shard.padding is None
        assert shard.tokens is None
        assert shard.length == 6


def test_padding_is_fetched_once(monkeypatch):
    padding = torch.arange(12)[None] >= 9

    def fetch(ranks):
        own = padding[:, 6 * ranks.rank :][:, :6]
        shard = Shard.of(1, 6, ranks=ranks, key_padding_mask=own)
        wanted = (range(0, 8), range(3, 12))
        first, before = shard.padding_of(wanted), ranks.sent
        assert shard.padding_of(wanted) is first
        assert ranks.sent == before
        return first.x

    one, other = in_threads(2, fetch)
    assert torch.equal(one, padding[:, :8])
    assert torch.equal(other, padding[:, 3:])


@pytest.mark.parametrize(
    ("sizes", "word"),
    [(0, "chunk_tokens"), (-3, "chunk_tokens"), ([3, 3], "chunks of 7 tokens"), ([7, 0], "1 or more")],
)
def test_chunks_that_are_none(sizes, word):
    with pytest.raises(ValueError, match=word):
        Shard.of(1, 7, chunk_tokens=sizes)


def test_chunks():
    shard = Shard.of(1, 7, chunk_tokens=3)
    assert shard.chunks == (range(0, 3), range(3, 6), range(6, 7))
    assert Shard.of(1, 7).chunks == (range(0, 7),)


def test_ranks_that_do_not_go_together():
    with pytest.raises(ValueError, match="one token or more"):
        in_threads(2, lambda ranks: Shard.of(1, ranks.rank, ranks=ranks))
    with pytest.raises(ValueError, match="same number of rows"):
        in_threads(2, lambda ranks: Shard.of(1 + ranks.rank, 3, ranks=ranks))


def test_what_a_layer_refuses_beside_a_shard():
    layer = TwoLevelAttention(8, 2, window=Window(3))
    mask = torch.ones(1, 5, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"global_mask must be \(1, 6\)"):
        Shard.of(1, 6, global_mask=mask)
    with pytest.raises(ValueError, match="belong to the shard"):
        layer(torch.randn(1, 5, 8), global_mask=mask, shard=Shard.of(1, 5))
    rotary = Rotary(torch.ones(1, 4, 4), torch.zeros(1, 4, 4))
    with pytest.raises(ValueError, match="rotary has 4 angles, but 5 tokens"):
        layer(torch.randn(1, 5, 8), rotary=rotary, shard=Shard.of(1, 5))
    with pytest.raises(ValueError, match="x has 5 tokens, but the shard 6"):
        layer(torch.randn(1, 5, 8), shard=Shard.of(1, 6))
    shard = Shard.of(1, 5, global_mask=mask)
    with pytest.raises(ValueError, match="give global_c2p"):
        layer(torch.randn(1, 5, 8), score_terms=(DisentangledPosition(torch.randn(2, 6, 4)),), shard=shard)
    separate = TwoLevelAttention(8, 2, window=Window(3), separate_global_projections=True)
    with pytest.raises(ValueError, match="do not go together"):
        separate(torch.randn(1, 5, 8), score_terms=(RelativePositionBias(torch.randn(2, 3)),), shard=shard)


def test_named_backends_that_cannot_divide_say_so():
    layer = TwoLevelAttention(
        8, 2, window=Window.unlimited(), backend="sdpa", pooled_window=Window(3), pooling=Pooling(2, 1)
    )
    with pytest.raises(ValueError, match="backend 'sdpa' cannot run this call"):
        layer(torch.randn(1, 5, 8), shard=Shard.of(1, 5, global_mask=torch.ones(1, 5, dtype=torch.bool)))
