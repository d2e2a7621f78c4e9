"""What is known of the tokens near a rank, and how often ranks exchange it."""

import torch

from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window, pool_keys
from fairseq_poolingformer.attention.sharding import Shard
from fairseq_poolingformer.attention.sharding.near import Near
from fairseq_poolingformer.attention.sharding.reach import Reach
from tests.attention.sharding.ranks import in_threads
from tests.attention.test_rotary import rotary_of

N = 12


def test_padding_is_fetched_once():
    padding = torch.arange(N)[None] >= 9

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


def test_each_rank_knows_its_neighbours():
    """Padding of tokens and of pools, global tokens, and angles, which layers of one reach fetch once."""
    pooling = Pooling(3, 2)
    layer = TwoLevelAttention(8, 2, window=Window(2), pooled_window=Window(4), pooling=pooling)
    padding, globals_ = torch.arange(N)[None] >= 7, torch.arange(N)[None] % 5 == 0
    rotary, x = rotary_of(torch.arange(N)[None], pooling, padding), torch.randn(1, 2, N, 4, dtype=torch.float64)
    _, hidden = pool_keys(x, pooling, padding_mask=padding)

    def check(ranks):
        part = slice(6 * ranks.rank, 6 * ranks.rank + 6)
        shard = Shard.of(1, 6, ranks=ranks, global_mask=globals_[:, part], key_padding_mask=padding[:, part])
        rows = [*shard.part, *(N + pool for pool in shard.pools(pooling))]
        own = type(rotary)(rotary.cos[:, rows], rotary.sin[:, rows])
        reach = Reach(layer, shard.parts)
        near, sent = Near(shard, reach, pooling, own), ranks.sent
        again = Near(shard, reach, pooling, own)
        assert ranks.sent == sent
        seen, pools = reach.seen[ranks.rank], reach.pools_seen[ranks.rank]
        assert torch.equal(near.padding(seen), padding[:, seen.start : seen.stop])
        assert torch.equal(near.pool_padding(pools), hidden[:, pools.start : pools.stop])
        keys, copies = near.hidden_keys(seen)
        assert torch.equal(keys, (padding | globals_)[:, seen.start : seen.stop])
        assert copies.mask.sum() == globals_.sum()
        of_seen = torch.cat([x[:, :, seen.start : seen.stop], x[:, :, globals_[0]]], 2)
        places = torch.cat([torch.arange(seen.start, seen.stop), globals_[0].nonzero()[:, 0]])
        return again.turned(of_seen, seen, with_globals=True), of_seen, places

    for found, of_seen, places in in_threads(2, check):
        expected = rotary_of(places[None])
        half = of_seen.roll(2, -1) * torch.tensor([-1.0, -1.0, 1.0, 1.0])
        torch.testing.assert_close(found, of_seen * expected.cos + half * expected.sin)
