"""Dropout masks drawn from a seed."""

import pytest
import torch

from fairseq_poolingformer.attention import DropoutAt, Pooling, Window, band_attention
from fairseq_poolingformer.attention.dropout import KeepMask
from tests.attention.calls import assert_equals_reference, tensors


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


DROPPED = KeepMask(0.4, 5).dropped


def test_pairs_decide_whatever_the_rest_of_the_call_is():
    whole = DropoutAt(5)
    kept = whole.of_pairs(torch.zeros(3, 4, 50, 60), DROPPED, range(50), range(60))
    part = DropoutAt(5, query=13, key=21, batch=1, head=2)
    of_part = part.of_pairs(torch.zeros(2, 2, 7, 5), DROPPED, range(7), range(0, 10, 2))
    assert torch.equal(of_part, kept[1:, 2:, 13:20, 21:31:2])
    one_head = whole.of_pairs(torch.zeros(3, 1, 50, 60), DROPPED, range(50), range(60), first_head=3)
    assert torch.equal(one_head, kept[:, 3:])
    for other in (DropoutAt(6), DropoutAt(5 + 2**32), DropoutAt(5, lane=1)):
        assert other.of_pairs(kept, DROPPED, range(50), range(60)).ne(kept).double().mean() > 0.4
    in_lane = whole.of_pairs(kept, DROPPED, range(50), range(60), lane=1)
    assert torch.equal(in_lane, DropoutAt(5, lane=1).of_pairs(kept, DROPPED, range(50), range(60)))


def test_pairs_drop_their_share_independently():
    mask, at = KeepMask(0.3, 9), DropoutAt(9, query=10**6, key=10**6 - 128)
    drawn = at.of_pairs(torch.zeros(4, 16, 256, 512, dtype=torch.float64), mask.dropped, range(256), range(512))
    kept = drawn - mask.keep
    variance = mask.keep * (1 - mask.keep)
    assert kept.mean().abs() < 5 * (variance / kept.numel()) ** 0.5
    for dim, distance in ((0, 1), (1, 1), (1, 8), (2, 1), (2, 2), (2, 64), (3, 1), (3, 2), (3, 4), (3, 256)):
        rest = kept.size(dim) - distance
        product = kept.narrow(dim, 0, rest) * kept.narrow(dim, distance, rest)
        assert product.mean().abs() < 5 * variance / product.numel() ** 0.5, (dim, distance)


GLOBAL = torch.arange(40)[None].expand(2, -1) % torch.tensor([[19], [50]]) == 3
PATTERNS = [
    {"window": Window(4)},
    {"window": Window(3, 0, (1, 2)), "global_mask": GLOBAL},
    {"window": Window.unlimited()},
    {"window": Window(9), "pooling": Pooling(5, 4), "query_offset": 3},
    {"window": Window(9), "pooling": Pooling(3, 2, "query")},
]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("arguments", PATTERNS)
def test_backends_drop_the_same_pairs(arguments):
    inputs = tensors(2, 2, 40, 40, 4)
    assert_equals_reference(inputs, "block", dropout_p=0.4, dropout_at=DropoutAt(7, 11, 5), **arguments)
    assert_equals_reference(
        inputs, "block", dropout_p=0.4, dropout_at=DropoutAt(7, 11, 5), return_lse=True, **arguments
    )


@pytest.mark.parametrize("backend", ["block", "reference"])
@pytest.mark.parametrize("at", [None, DropoutAt(3)])
def test_global_tokens_draw_independently(backend, at):
    """As queries and as keys, from one another and from row to row and head to head: one-hot values show the mask."""
    torch.manual_seed(0)
    size = 512
    one_hot = torch.eye(size, dtype=torch.float64).expand(2, 2, -1, -1)
    tokens = torch.tensor([3, 40, 41, 500])
    global_mask = torch.zeros(2, size, dtype=torch.bool)
    global_mask[:, tokens] = True
    x = torch.zeros_like(one_hot)
    arguments = {"window": Window(2), "global_mask": global_mask, "dropout_p": 0.5, "dropout_at": at}
    kept = band_attention(x, x, one_hot, backend=backend, **arguments) != 0.0
    others = torch.ones(size, dtype=torch.bool)
    others[tokens] = False
    for of_tokens in (kept[:, :, tokens][..., others], kept[..., tokens].transpose(2, 3)[..., others]):
        signs = of_tokens.flatten(0, 2).double() * 2 - 1
        together = (signs @ signs.T / signs.size(1)).fill_diagonal_(0.0)  # of independent draws N(0, 1/508)
        assert together.abs().max() < 5 / signs.size(1) ** 0.5


@pytest.mark.parametrize("backend", ["block", "reference"])
def test_a_slice_of_a_call_has_its_numbers(backend):
    query, key, value = (x.detach() for x in tensors(2, 2, 60, 60, 4))
    arguments = {"window": Window(6), "dropout_p": 0.5, "backend": backend}
    expected = band_attention(query, key, value, dropout_at=DropoutAt(3), **arguments)[:, :, 20:31]
    keys = slice(14, 37)
    at = DropoutAt(3, query=20, key=14)
    out = band_attention(
        query[:, :, 20:31], key[:, :, keys], value[:, :, keys], query_offset=6, dropout_at=at, **arguments
    )
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
    other = band_attention(query, key, value, dropout_at=DropoutAt(4), **arguments)[:, :, 20:31]
    assert not torch.allclose(out, other)
