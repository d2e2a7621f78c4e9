"""Dropout masks drawn from a seed."""

import pytest
import torch

from fairseq_poolingformer.attention.dropout import KeepMask


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1,), (3, 5), (7, 1001)])
def test_the_same_again_and_another_elsewhere(dtype, shape):
    x = torch.zeros(shape, dtype=dtype)
    mask = KeepMask(0.5, seed=3)
    drawn = mask.like(x)
    assert drawn.dtype == dtype
    assert drawn.shape == x.shape
    assert set(drawn.flatten().tolist()) <= {0.0, 1.0}
    assert torch.equal(drawn, mask.like(x))
    if x.numel() > 1000:
        assert not torch.equal(drawn, mask.like(x, (1,)))
        assert not torch.equal(drawn, KeepMask(0.5, seed=4).like(x))


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.999])
def test_share_and_independence_of_what_is_kept(probability):
    mask = KeepMask(probability, seed=0)
    drawn = mask.like(torch.zeros(1000, 1000))
    assert mask.keep == pytest.approx(1 - probability, abs=2**-16)
    spread = (mask.keep * (1 - mask.keep) / drawn.numel()) ** 0.5
    assert drawn.mean().item() == pytest.approx(mask.keep, abs=5 * spread + 1e-12)
    neighbours = (drawn[:, 1:] * drawn[:, :-1]).mean().item()  # four draws come from one 64-bit number
    assert neighbours == pytest.approx(mask.keep**2, abs=10 * spread + 1e-12)


def test_seeds_come_from_torchs_generator():
    torch.manual_seed(5)
    first, second = KeepMask.draw(0.1), KeepMask.draw(0.1)
    torch.manual_seed(5)
    assert KeepMask.draw(0.1) == first != second
