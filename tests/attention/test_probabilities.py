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
from tests.attention.naive import attend, seen_by

B, H, T, D = 2, 2, 23, 4


def expected_weights(q, k, **arguments):
    """(B, H, T, S), one query after another, with the visibility of the papers; values that name their keys show it."""
    names = torch.eye(k.size(2), dtype=q.dtype).expand(*k.shape[:3], -1)
    return attend(q, k, names, seen_by(**arguments), q.size(-1) ** -0.5)


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
    found = band_weights(q, k, **arguments)
    expected = expected_weights(q, k, **arguments)
    torch.testing.assert_close(dense(found), expected, rtol=0, atol=1e-12)
    sums = found.band.sum(-1) + found.to_global.sum(-1)
    assert ((sums - 1).abs().lt(1e-12) | sums.eq(0)).all()


@pytest.mark.parametrize("term", ["bias", "disentangled"])
def test_weights_with_score_terms_give_the_operators_output(term):
    """The operator with values that name their keys gives the weights themselves."""
    torch.manual_seed(0)
    n = 90  # more than a block of queries
    q, k = torch.randn(B, H, n, n).double(), torch.randn(B, H, n, n).double()
    global_mask, padding = torch.zeros(B, n, dtype=torch.bool), torch.zeros(B, n, dtype=torch.bool)
    global_mask[0, [0, 5, 80]] = global_mask[1, 3] = padding[1, 70:] = True
    tables = {name: torch.randn(H, 16, n).double() for name in ("c2p", "p2c")}
    coarse = {f"global_{name}": torch.randn(H, 6, n).double() for name in ("c2p", "p2c")}
    terms = {
        "bias": RelativePositionBias(torch.randn(H, 9).double()),
        "disentangled": DisentangledPosition(**tables, **coarse, global_bucket=40),
    }
    arguments = {"window": Window(7), "global_mask": global_mask, "key_padding_mask": padding, "scale": 0.05}
    arguments["score_terms"] = (terms[term],)
    values = torch.eye(n).double().expand(B, H, n, n)
    expected = band_attention(q, k, values, backend="reference", **arguments)
    found = band_weights(q, k, **arguments)
    torch.testing.assert_close(dense(found), expected, rtol=0, atol=1e-12)
    assert found.band.shape == (B, H, n, 15)
    assert found.global_keys.tolist() == [[0, 5, 80], [3, -1, -1]]


def test_float16_is_computed_in_float32():
    q, k = torch.randn(1, 1, 9, 4).half() * 200, torch.randn(1, 1, 9, 4).half() * 200
    found = band_weights(q, k, window=Window(2))
    assert found.band.dtype == torch.float32
    assert found.band.isfinite().all()


def test_weights_of_pools_are_spread_over_their_tokens():
    pooling = Pooling(3, 2)
    k = torch.randn(1, 1, pooling.num_pools(6), 4)
    found = band_weights(torch.randn(1, 1, 6, 4), k, window=Window(20), pooling=pooling)
    assert found.key_start.tolist() == [0, 2, 4]
    assert found.key_stop.tolist() == [3, 5, 6]
    row = torch.tensor([[0.3, 0.6, 0.1]])
    expected = [[0.1, 0.1, 0.1 + 0.2, 0.2, 0.2 + 0.05, 0.05]]
    torch.testing.assert_close(found.over_tokens(row), torch.tensor(expected))
    aligned = band_weights(
        torch.randn(1, 1, 3, 4), torch.randn(1, 1, 4, 4), window=Window(9), pooling=Pooling(2, 1, "query")
    )
    assert aligned.key_start.tolist() == [0, 0, 1, 2]
    assert aligned.key_stop.tolist() == [1, 2, 3, 3]


@pytest.mark.parametrize(
    "options",
    [{}, {"mix": True, "share_weights": True}, {"separate_global_projections": True}, {"batch_first": False}],
)
def test_the_module_gives_the_weights_of_its_output(options):
    """Both levels: from the weights and the projections of the values follows the output."""
    torch.manual_seed(0)
    module = TwoLevelAttention(
        8, 2, window=Window(3), pooled_window=Window(6), pooling=Pooling(3, 2), pool_type="mean", **options
    ).double()
    x = torch.randn(2, 17, 8).double()
    global_mask, padding = torch.zeros(2, 17, dtype=torch.bool), torch.zeros(2, 17, dtype=torch.bool)
    global_mask[0, [0, 9]] = padding[1, 12:] = True
    masks = {"global_mask": global_mask, "key_padding_mask": padding}
    given = x if module.batch_first else x.transpose(0, 1)
    with recorded_weights(module) as recorded:
        output = module(given, **masks)
    one, two = recorded[""]
    module.batch_first, split, merge = True, module._split, module._merge

    y = dense(one) @ split(module.v_proj(x))
    if module.global_v_proj is not None:
        own = dense(one) @ split(module.global_v_proj(x))
        y = torch.where(global_mask[:, None, :, None], own, y)
    source = x if module.mix else merge(y)
    _, _, v_proj = module._pooled_projections()
    pooled_values = module._pool_projected(source, v_proj, None, Masks(None, padding))
    expected = module.out_proj(merge(y + dense(two) @ pooled_values))
    torch.testing.assert_close(output if options.get("batch_first", True) else output.transpose(0, 1), expected)
