"""Rotary positions in both levels, against complex numbers and one token after another."""

import pytest
import torch

from fairseq_poolingformer.attention import Pooling
from fairseq_poolingformer.attention.global_tokens import FirstTokens
from fairseq_poolingformer.attention.rotary import Rotary, pool_positions, turned
from tests.attention.naive import pool_centres, pool_starts, rotate
from tests.attention.test_modules import build, check, example, expected_output, random_layer

THETA, D = 50.0, 4


def rotary_of(positions, pooling=None, padding=None):
    places = positions.float()
    if pooling is not None:
        pools = pool_positions(positions, pooling, padding)
        places = torch.cat([places.expand(len(pools), -1), pools], 1)
    angles = places.double()[..., None] * THETA ** (-torch.arange(D // 2).double() / (D // 2))
    angles = torch.cat([angles, angles], -1)
    return Rotary(angles.cos(), angles.sin())


def test_turned_is_a_product_of_complex_numbers():
    x, places = torch.randn(2, 3, 7, D).double(), torch.arange(7) * 1.5
    rotary = rotary_of(places[None])
    torch.testing.assert_close(turned(x, rotary), rotate(x, places, THETA), rtol=0, atol=1e-14)
    torch.testing.assert_close(turned(x[:, :, 2:], rotary, 2), rotate(x, places, THETA)[:, :, 2:], rtol=0, atol=1e-14)
    assert turned(x, None) is x


def test_half_precision_is_turned_in_float32():
    x, rotary = torch.randn(1, 2, 9, D).bfloat16(), rotary_of(torch.arange(9)[None])
    assert torch.equal(turned(x, rotary), turned(x.float(), rotary).bfloat16())


@pytest.mark.parametrize("alignment", ["grid", "query"])
@pytest.mark.parametrize(("kernel_size", "stride"), [(1, 1), (3, 2), (4, 4), (2, 5), (9, 3)])
def test_positions_of_pools_are_their_middles(kernel_size, stride, alignment):
    pooling = Pooling(kernel_size, stride, alignment)
    padding = torch.arange(13) >= torch.tensor([13, 8, 1])[:, None]
    starts = pool_starts(13, kernel_size=kernel_size, stride=stride, alignment=alignment)
    expected = pool_centres(starts, kernel_size=kernel_size, padding=padding)
    positions = torch.arange(13)[None]
    assert torch.equal(pool_positions(positions, pooling, padding), expected.float())
    assert torch.equal(pool_positions(positions, pooling), expected[:1].float())
    far = 2**22 + positions  # where float32 still has all halves, and a mean of five would not
    assert torch.equal(pool_positions(far, pooling), 2**22 + expected[:1].float())


@pytest.mark.parametrize("seed", range(0, 36, 3))
def test_layers_are_the_equations(seed):
    module = random_layer(seed, bias=seed % 2 > 0)
    x, global_mask, padding = example()
    check(module, rotary_of(torch.arange(x.size(1))[None], module.pooling, padding), THETA)
    if seed == 0:
        plain, rotated = (expected_output(module, x, global_mask, padding, theta) for theta in (None, THETA))
        assert (plain - rotated).abs().max() > 1e-3


@torch.no_grad()
def test_global_tokens_at_the_beginning_need_no_look_at_the_mask():
    module = build(separate_global_projections=True)
    x, _, padding = example()
    at_start = (torch.arange(x.size(1)) < 2).expand(len(x), -1)
    rotary = rotary_of(torch.arange(x.size(1))[None], module.pooling, padding)
    actual, expected = (
        module(x, global_mask=mask, key_padding_mask=padding, rotary=rotary)
        for mask in (FirstTokens(at_start, 2), at_start)
    )
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
