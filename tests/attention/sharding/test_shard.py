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


def test_no_rank_with_padding_or_global_tokens():
    none = torch.zeros(2, 3, dtype=torch.bool)
    for shard in in_threads(2, lambda ranks: Shard.of(2, 3, ranks=ranks, global_mask=none)):
        assert shard.padding is None
        assert shard.tokens is None
        assert shard.length == 6


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
    with pytest.raises(ValueError, match=r"key_padding_mask must be \(1, 5\) bool, got \(1, 5\) torch.int64"):
        Shard.of(1, 5, key_padding_mask=mask.long())
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
