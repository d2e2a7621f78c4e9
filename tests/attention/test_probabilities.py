"""Weights in banded form against a softmax written out for one query after another, and against what the models do."""

import random

import pytest
import torch

from fairseq_poolingformer.attention import (
    DisentangledPosition,
    Masks,
    Pooling,
    RelativePositionBias,
    TwoLevelAttention,
    Window,
    band_attention,
    band_weights,
    recorded_weights,
)
from tests.attention.calls import random_arguments
from tests.attention.naive import attend, visibility
from tests.attention.test_rotary import rotary_of

B, H, T, D = 2, 2, 23, 4


def expected_weights(q, k, **arguments):
    """(B, H, T, S), one query after another, with the visibility of the papers; values that name their keys show it."""
    names = torch.eye(k.size(2), dtype=q.dtype).expand(*k.shape[:3], -1)
    return attend(q, k, names, visibility(**arguments), q.size(-1) ** -0.5)


def dense(weights):
    return torch.stack([weights.of_query(t) for t in range(weights.band.size(2))], dim=2)


@pytest.mark.parametrize("seed", range(24))
def test_weights_are_those_of_a_softmax_over_what_each_query_sees(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    arguments = random_arguments(rng, B, H, T)
    pooling = arguments.get("pooling")
    keys = T if pooling is None else pooling.num_pools(T)
    q, k = torch.randn(B, H, T, D).double(), torch.randn(B, H, keys, D).double()
    if "key_padding_mask" in arguments:
        arguments["key_padding_mask"] = arguments["key_padding_mask"][:, torch.arange(keys) % T]
    weights, expected = band_weights(q, k, **arguments), expected_weights(q, k, **arguments)
    torch.testing.assert_close(dense(weights), expected, rtol=0, atol=1e-12)
    sums = weights.band.sum(-1) + weights.to_global.sum(-1)
    assert ((sums - 1).abs().lt(1e-12) | sums.eq(0)).all()


@pytest.mark.parametrize("term", ["bias", "disentangled"])
def test_weights_with_score_terms_give_the_operators_output(term):
    torch.manual_seed(0)
    n = 90  # more than a block of queries
    q, k = torch.randn(2, B, H, n, n).double()
    global_mask, padding = torch.zeros(2, B, n, dtype=torch.bool)
    global_mask[0, [0, 5, 80]] = global_mask[1, 3] = padding[1, 70:] = True
    tables, coarse = torch.randn(2, H, 16, n).double(), torch.randn(2, H, 6, n).double()
    terms = {"bias": RelativePositionBias(torch.randn(H, 9).double())}
    terms["disentangled"] = DisentangledPosition(*tables, *coarse, global_bucket=40)
    arguments = {"window": Window(7), "global_mask": global_mask, "key_padding_mask": padding, "scale": 0.05}
    arguments["score_terms"] = (terms[term],)
    values = torch.eye(n).double().expand(B, H, n, n)
    weights = band_weights(q, k, **arguments)
    expected = band_attention(q, k, values, backend="reference", **arguments)
    torch.testing.assert_close(dense(weights), expected, rtol=0, atol=1e-12)
    assert weights.band.shape == (B, H, n, 15)
    assert weights.global_keys.tolist() == [[0, 5, 80], [3, -1, -1]]


def test_float16_is_computed_in_float32():
    band = band_weights(*torch.randn(2, 1, 1, 9, 4).half() * 200, window=Window(2)).band
    assert band.dtype == torch.float32
    assert band.isfinite().all()


def test_weights_of_pools_are_spread_over_their_tokens():
    weights = band_weights(*(torch.randn(1, 1, n, 4) for n in (6, 3)), window=Window(20), pooling=Pooling(3, 2))
    assert (weights.key_start.tolist(), weights.key_stop.tolist()) == ([0, 2, 4], [3, 5, 6])
    expected = torch.tensor([[0.1, 0.1, 0.1 + 0.2, 0.2, 0.2 + 0.05, 0.05]])
    torch.testing.assert_close(weights.over_tokens(torch.tensor([[0.3, 0.6, 0.1]])), expected)
    aligned = Pooling(2, 1, "query")
    weights = band_weights(*(torch.randn(1, 1, n, 4) for n in (3, 4)), window=Window(9), pooling=aligned)
    assert (weights.key_start.tolist(), weights.key_stop.tolist()) == ([0, 0, 1, 2], [1, 2, 3, 3])


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"mix": True, "share_weights": True}, {"separate_global_projections": True}, {"batch_first": False}),
        {"mix": True, "share_weights": True, "separate_global_projections": True, "rotary": True},
    ],
)
def test_the_module_gives_the_weights_of_its_output(options):
    """Both levels: from the weights and the projections of the values follows the output."""
    options = dict(options)
    rotates = options.pop("rotary", False)
    torch.manual_seed(0)
    levels = {"window": Window(3), "pooled_window": Window(6), "pooling": Pooling(3, 2), "pool_type": "mean"}
    module = TwoLevelAttention(8, 2, **levels, **options).double()
    x = torch.randn(2, 17, 8).double()
    global_mask, padding = torch.zeros(2, 2, 17, dtype=torch.bool)
    global_mask[0, [0, 9]] = padding[1, 12:] = True
    with recorded_weights(module) as recorded:
        tokens = x if module.batch_first else x.transpose(0, 1)
        rotary = rotary_of(torch.arange(17)[None], module.pooling, padding) if rotates else None
        output = module(tokens, global_mask=global_mask, key_padding_mask=padding, rotary=rotary)
    level_one, level_two = map(dense, recorded[""])
    module.batch_first, split, merge = True, module._split, module._merge

    y = level_one @ split(module.v_proj(x))
    if module.global_v_proj is not None:
        of_global = level_one @ split(module.global_v_proj(x))
        y = torch.where(global_mask[:, None, :, None], of_global, y)
    _, _, v_proj = module._pooled_projections()
    pooled_values = module._pool_projected(x if module.mix else merge(y), v_proj, None, Masks(None, padding))
    expected = module.out_proj(merge(y + level_two @ pooled_values))
    torch.testing.assert_close(output if options.get("batch_first", True) else output.transpose(0, 1), expected)
