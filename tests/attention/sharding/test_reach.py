"""What each part of a document needs, token by token."""

import pytest

from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window
from fairseq_poolingformer.attention.sharding.reach import Reach

LENGTH, PARTS = 31, (range(9), range(9, 20), range(20, 31))


@pytest.mark.parametrize("mix", [False, True])
def test_a_part_reaches_what_its_tokens_see_and_its_pools_have(mix):
    pooling, far = Pooling(5, 4), 9
    layer = TwoLevelAttention(8, 2, window=Window(2), pooled_window=Window(far), pooling=pooling, mix=mix)
    reach = Reach(layer, PARTS)
    assert [pool for pools in reach.pools for pool in pools] == list(range(pooling.num_pools(LENGTH)))
    for rank, part in enumerate(PARTS):
        starts = [pooling.first_start + 4 * pool for pool in reach.pools[rank]]
        of_pools = {token for start in starts for token in range(max(start, 0), min(start + 5, LENGTH))}
        assert set(reach.straddled[rank]) == of_pools
        seen = {key for key in range(LENGTH) if any(abs(key - query) <= 2 for query in part)}
        assert set(reach.seen[rank]) == (seen | of_pools if mix else seen)
        of_seen = {token for p in reach.pools_seen[rank] for token in range(4 * p, 4 * p + 5) if token < LENGTH}
        assert set(reach.near[rank]) >= seen | of_pools | (of_seen if pooling.first_start == 0 else set())


def test_a_layer_without_pools_reaches_its_window():
    reach = Reach(TwoLevelAttention(8, 2, window=Window(2)), PARTS)
    assert reach.near == reach.seen == (range(11), range(7, 22), range(18, 31))
    assert reach.pools == reach.straddled == reach.pools_seen == ()
