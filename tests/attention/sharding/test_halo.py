"""What a part sees of its document, in numbers, and how often ranks exchange what is known of it."""

import itertools

import pytest
import torch

from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window, pool_keys, visible_pairs
from fairseq_poolingformer.attention.sharding import Shard
from fairseq_poolingformer.attention.sharding.halo import (
    Halo,
    Reach,
    hull,
    pools_among,
    pools_of,
    pools_seen,
    tokens_of,
    tokens_seen,
)
from tests.attention.sharding.ranks import in_threads
from tests.attention.test_rotary import rotary_of

POOLINGS = [Pooling(k, s, a) for k, s, a in itertools.product([1, 2, 5], [1, 3, 7], ["grid", "query"])]
PARTS = [range(0, 4), range(4, 5), range(5, 17), range(17, 23)]
N = 23


def seen(window, pooling, part, num_keys, heads=1):
    """From the first key to the last that some query of a part sees."""
    pairs = visible_pairs(window, pooling, heads, part.start, len(part), num_keys).any(0).any(0)
    keys = pairs.nonzero().flatten().tolist()
    return range(keys[0], keys[-1] + 1) if keys else None


@pytest.mark.parametrize("window", [Window(0), Window(3), Window(2, 0), Window(0, 5), Window(99), Window(2, 1, (1, 3))])
@pytest.mark.parametrize("part", PARTS)
def test_tokens_seen(window, part):
    found, least = tokens_seen(window, 2, part, N), hull(seen(window, None, part, N, heads=2), part)
    assert set(least) <= set(found)
    if window.dilation == 1:  # else it may begin or end between two taps
        assert found == least


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("reach", [0, 4, 11])
def test_pools_seen(pooling, reach):
    everything = range(pooling.num_pools(N))
    for part in PARTS:
        expected = seen(Window(reach), pooling, part, len(everything))
        found = pools_seen(Window(reach), pooling, part, everything)
        assert set(found) <= set(everything)
        if expected is None:
            assert len(found) >= 1
        elif pooling.alignment == "grid":
            assert found == expected
        else:  # of which each query sees those that start a stride apart
            assert set(expected) <= set(found)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_each_pool_is_made_once_from_its_own_tokens(pooling):
    x = torch.randn(1, 1, N, 2, dtype=torch.float64)
    expected, _ = pool_keys(x, pooling)
    made = []
    for part in PARTS:
        pools = pools_of(pooling, part)
        tokens = tokens_of(pooling, pools, part, N)
        assert tokens.stop <= part.stop + pooling.kernel_size - 1
        pooled, _ = pool_keys(x[:, :, tokens.start : tokens.stop], pooling)
        among = pools_among(pooling, tokens, pools)
        assert len(among) == len(pools)
        made.append(pooled[:, :, among.start : among.stop])
    torch.testing.assert_close(torch.cat(made, 2), expected)


LENGTH, THREE = 31, (range(9), range(9, 20), range(20, 31))


@pytest.mark.parametrize("mix", [False, True])
def test_a_part_reaches_what_its_tokens_see_and_its_pools_have(mix):
    pooling, far = Pooling(5, 4), 9
    layer = TwoLevelAttention(8, 2, window=Window(2), pooled_window=Window(far), pooling=pooling, mix=mix)
    reach = Reach(layer, THREE)
    assert [pool for pools in reach.pools for pool in pools] == list(range(pooling.num_pools(LENGTH)))
    for rank, part in enumerate(THREE):
        starts = [pooling.first_start + 4 * pool for pool in reach.pools[rank]]
        of_pools = {token for start in starts for token in range(max(start, 0), min(start + 5, LENGTH))}
        assert set(reach.straddled[rank]) == of_pools
        seen = {key for key in range(LENGTH) if any(abs(key - query) <= 2 for query in part)}
        assert set(reach.seen[rank]) == (seen | of_pools if mix else seen)
        of_seen = {token for p in reach.pools_seen[rank] for token in range(4 * p, 4 * p + 5) if token < LENGTH}
        assert set(reach.near[rank]) >= seen | of_pools | (of_seen if pooling.first_start == 0 else set())


def test_a_layer_without_pools_reaches_its_window():
    reach = Reach(TwoLevelAttention(8, 2, window=Window(2)), THREE)
    assert reach.near == reach.seen == (range(11), range(7, 22), range(18, 31))
    assert reach.pools == reach.straddled == reach.pools_seen == ()


SHORT = 12


def test_padding_is_fetched_once():
    padding = torch.arange(SHORT)[None] >= 9

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
    padding, globals_ = torch.arange(SHORT)[None] >= 7, torch.arange(SHORT)[None] % 5 == 0
    rotary, x = rotary_of(torch.arange(SHORT)[None], pooling, padding), torch.randn(1, 2, SHORT, 4, dtype=torch.float64)
    _, hidden = pool_keys(x, pooling, padding_mask=padding)

    def check(ranks):
        part = slice(6 * ranks.rank, 6 * ranks.rank + 6)
        shard = Shard.of(1, 6, ranks=ranks, global_mask=globals_[:, part], key_padding_mask=padding[:, part])
        rows = [*shard.part, *(SHORT + pool for pool in shard.pools(pooling))]
        own = type(rotary)(rotary.cos[:, rows], rotary.sin[:, rows])
        reach = Reach(layer, shard.parts)
        near, sent = Halo(shard, reach, pooling, own), ranks.sent
        again = Halo(shard, reach, pooling, own)
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
