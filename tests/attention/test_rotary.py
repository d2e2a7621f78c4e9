"""Rotary positions in both levels, against complex numbers and one token after another."""

import pytest
import torch

from fairseq_poolingformer.attention import Masks, Pooling, band_weights
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


@pytest.mark.parametrize("seed", range(36))
def test_layers_are_the_equations(seed):
    module = random_layer(seed, bias=seed % 3 > 0)
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


@torch.no_grad()
def test_weights_are_those_of_turned_queries_and_keys():
    module = build(separate_global_projections=True, share_weights=True, mix=True)
    x, global_mask, padding = example()
    rotary = rotary_of(torch.arange(x.size(1))[None], module.pooling, padding)
    masks = {"global_mask": global_mask, "key_padding_mask": padding}
    level_one, level_two = module.weights(x, **masks, rotary=rotary)
    query, key = (turned(module._split(p(x)), rotary) for p in (module.q_proj, module.k_proj))
    expected = band_weights(query, key, window=module.window, **masks)
    torch.testing.assert_close(level_one.band, expected.band, rtol=0, atol=1e-12)
    query_of, key_of = (turned(module._split(p(x)), rotary) for p in (module.global_q_proj, module.global_k_proj))
    scores = (query_of @ key_of.transpose(2, 3) / D**0.5).masked_fill(padding[:, None, None], -torch.inf)
    torch.testing.assert_close(level_one.from_global[0, :, 1], scores.softmax(-1)[0, :, 7], rtol=0, atol=1e-12)
    rows = [torch.stack([level.of_query(t) for t in range(x.size(1))], 2) for level in (level_one, level_two)]
    y, of_global = (rows[0] @ module._split(p(x)) for p in (module.v_proj, module.global_v_proj))
    y = torch.where(global_mask[:, None, :, None], of_global, y)
    z = rows[1] @ module._pool_projected(x, module.v_proj, None, Masks(None, padding))
    expected = module.out_proj(module._merge(y + z))
    torch.testing.assert_close(module(x, **masks, rotary=rotary)[~padding], expected[~padding], rtol=0, atol=1e-12)
