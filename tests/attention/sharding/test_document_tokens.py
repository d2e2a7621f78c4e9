"""Global tokens of a document, of which each rank knows all."""

import torch

from fairseq_poolingformer.attention.sharding import Shard
from tests.attention.sharding.ranks import in_threads


def test_global_tokens_of_all_ranks_in_the_documents_order():
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[0, [1, 4, 8]] = mask[1, [7]] = True
    padding = torch.arange(9) >= torch.tensor([9, 6])[:, None]
    columns = [slice(4), slice(4, 5), slice(5, 9)]

    def make(ranks):
        own = columns[ranks.rank]
        masks = {"global_mask": mask[:, own], "key_padding_mask": padding[:, own] if ranks.rank == 2 else None}
        return Shard.of(2, masks["global_mask"].size(1), ranks=ranks, **masks)

    of_ranks = torch.tensor([[1.0, 4.0, 8.0], [-1.0, -1.0, 7.0]])[:, None, :, None]
    for rank, shard in enumerate(in_threads(3, make)):
        tokens = shard.tokens
        assert shard.part == [range(0, 4), range(4, 5), range(5, 9)][rank]
        assert tokens.position.tolist() == [[1, 4, 8], [7, -1, -1]]
        assert tokens.hidden.tolist() == [[False] * 3, [True] * 3]
        assert tokens.counts == (1, 1, 1)
        assert torch.equal(tokens.among(range(2, 9)), mask[:, 2:])
        assert torch.equal(shard.padding, padding[:, columns[rank]])
        used = of_ranks >= 0
        assert torch.equal(tokens.in_order(of_ranks)[0], of_ranks[0])
        assert tokens.in_order(of_ranks)[1, 0, 0, 0] == 7.0
        assert torch.equal(tokens.by_rank(tokens.in_order(of_ranks))[used], of_ranks[used])
