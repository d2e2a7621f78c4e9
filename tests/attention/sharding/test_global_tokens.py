"""Global tokens of a document, of which each rank knows all."""

import torch

from fairseq_poolingformer.attention import DisentangledPosition, RelativePositionBias, TwoLevelAttention, Window
from fairseq_poolingformer.attention.sharding import Shard, global_tokens
from tests.attention.sharding.ranks import assert_same, in_threads, of_part, whole


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


C, H = 8, 2


def test_nan_at_padding_reaches_nobody():
    torch.manual_seed(0)
    layer = TwoLevelAttention(C, H, window=Window(3)).double()
    x, grad = torch.randn(2, 1, 12, C, dtype=torch.float64)
    padding, mask = torch.arange(12)[None] >= 9, torch.arange(12)[None] % 6 == 4  # token 10 is padding and global
    document = {"x": x.masked_fill(padding[..., None], torch.nan), "grad": grad, "global_mask": mask}
    document |= {"key_padding_mask": padding, "tensors": [torch.randn(H, 5).double()]}
    document |= {"terms": lambda table: (RelativePositionBias(table),)}
    expected = whole(layer, document)[0]
    found = of_part(layer, document, range(12))[0]
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0, equal_nan=True)
    assert not found[:, :9].isnan().any()


def test_scores_with_global_tokens_some_at_a_time(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(global_tokens, "DENSE_TOKENS", 4)
    layer = TwoLevelAttention(C, H, window=Window(3), dropout=0.3).double()
    x, grad = torch.randn(2, 2, 31, C, dtype=torch.float64)
    tables = [torch.randn(H, n, C // H, dtype=torch.float64) for n in (8, 8, 6, 6)]
    masks = {"global_mask": torch.rand(2, 31) < 0.3, "key_padding_mask": torch.arange(31) >= torch.tensor([[31], [9]])}
    terms = {"tensors": tables, "terms": lambda *positions: (DisentangledPosition(*positions, 5),)}
    document, sizes = {"x": x, "grad": grad, **masks, **terms}, []
    found = of_part(layer, document, range(31), seed=2)
    densely = global_tokens.GlobalPairs._attend
    monkeypatch.setattr(
        global_tokens.GlobalPairs,
        "_attend",
        lambda self, q, k, *others: sizes.append(min(q.size(2), k.size(2))) or densely(self, q, k, *others),
    )
    assert_same(of_part(layer, document, range(31), seed=2), found)
    assert max(sizes) <= 4
    monkeypatch.setattr(global_tokens, "DENSE_TOKENS", 99)
    assert_same(of_part(layer, document, range(31), seed=2), found)
    layer.eval()
    assert_same(of_part(layer, document, range(31)), whole(layer, document))
