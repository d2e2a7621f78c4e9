import torch

from fairseq_poolingformer.attention import Masks
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
