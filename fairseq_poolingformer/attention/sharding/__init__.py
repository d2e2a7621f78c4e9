"""One document over many processes: shards that exchange only their borders."""

from fairseq_poolingformer.attention.sharding.exchange import merged_over_ranks
from fairseq_poolingformer.attention.sharding.ranks import GroupRanks, Ranks
from fairseq_poolingformer.attention.sharding.shard import Shard

__all__ = ["GroupRanks", "Ranks", "Shard", "merged_over_ranks"]
