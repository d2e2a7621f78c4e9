import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_poolingformer.attention import Masks, Pooling, Window, one_softmax
from fairseq_poolingformer.attention.backends import self_check
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.one_softmax import by_one_kernel, share_of_pools


def test_share_of_pools_by_hand():
    """ln 3 beside ln 1; a global token; a query that sees pools alone, and one that sees nothing."""
    infinite = torch.tensor(-torch.inf)
    lse = torch.stack([torch.tensor(0.0), torch.tensor(0.0), infinite, infinite])[None, None]
    pools = torch.stack([torch.tensor(3.0).log(), torch.tensor(3.0).log(), torch.tensor(0.0), infinite])[None, None]
    share = share_of_pools(lse, pools, Masks(torch.tensor([[False, True, False, False]])))
    torch.testing.assert_close(share, torch.tensor([0.75, 0.0, 1.0, 0.5]).view(1, 1, 4, 1))


def test_another_backend_has_no_kernel_of_both():
    assert by_one_kernel(torch.zeros(1, 1, 4, 4), {}, dict, 0.0, "block") is None


def test_each_precision_of_float32_products_is_checked(monkeypatch):
    variants = []
    monkeypatch.setattr(self_check, "passes", lambda *variant: variants.append(variant))
    with FakeTensorMode():
        x, pools = torch.empty(1, 1, 8, 4, device="cuda"), torch.empty(1, 1, 4, 4, device="cuda")
    calls = Call.of(x, x, x, window=Window(1)), Call.of(x, pools, pools, window=Window(4), pooling=Pooling(2, 2))
    for precision in ("highest", "high", "medium", "high"):
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda precision=precision: precision)
        one_softmax._passes_self_check(*calls)
    assert len(variants) == 4
    assert len(set(variants)) == 3
