"""What a part sees of its document, in numbers, and how often ranks exchange what is known of it."""

import itertools

import pytest
import torch

from fairseq_poolingformer.attention import Pooling, Window, visible_pairs
from fairseq_poolingformer.attention.sharding import Shard
from fairseq_poolingformer.attention.sharding.halo import (
    hull,
    pools_seen,
    tokens_seen,
)
from tests.attention.sharding.ranks import in_threads

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
