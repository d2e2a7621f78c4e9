"""Ranges of tokens and pools against dense patterns."""

import itertools

import pytest
import torch

from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window, pool_keys, visible_pairs
from fairseq_poolingformer.attention.sharding.reach import (
    Reach,
    hull,
    pools_among,
    pools_of,
    pools_seen,
    tokens_of,
    tokens_seen,
)

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
