"""Score terms of pairs with global tokens, some at a time."""

import torch

from fairseq_poolingformer.attention import DisentangledPosition, RelativePositionBias, TwoLevelAttention, Window
from fairseq_poolingformer.attention.sharding import global_pairs
from tests.attention.sharding.ranks import assert_same, of_part, whole

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
    monkeypatch.setattr(global_pairs, "DENSE_TOKENS", 4)
    layer = TwoLevelAttention(C, H, window=Window(3), dropout=0.3).double()
    x, grad = torch.randn(2, 2, 31, C, dtype=torch.float64)
    tables = [torch.randn(H, n, C // H, dtype=torch.float64) for n in (8, 8, 6, 6)]
    masks = {"global_mask": torch.rand(2, 31) < 0.3, "key_padding_mask": torch.arange(31) >= torch.tensor([[31], [9]])}
    terms = {"tensors": tables, "terms": lambda *positions: (DisentangledPosition(*positions, 5),)}
    document, sizes = {"x": x, "grad": grad, **masks, **terms}, []
    found = of_part(layer, document, range(31), seed=2)
    densely = global_pairs.GlobalPairs._attend
    monkeypatch.setattr(
        global_pairs.GlobalPairs,
        "_attend",
        lambda self, q, k, *others: sizes.append(min(q.size(2), k.size(2))) or densely(self, q, k, *others),
    )
    assert_same(of_part(layer, document, range(31), seed=2), found)
    assert max(sizes) <= 4
    monkeypatch.setattr(global_pairs, "DENSE_TOKENS", 99)
    assert_same(of_part(layer, document, range(31), seed=2), found)
    layer.eval()
    assert_same(of_part(layer, document, range(31)), whole(layer, document))
