"""TwoLevelAttention against the equations written out for one token after another."""

import dataclasses
import itertools
import random

import pytest
import torch

from fairseq_poolingformer.attention import (
    POOL_TYPES,
    Masks,
    Pooling,
    RelativePositionBias,
    TwoLevelAttention,
    Window,
)
from tests.attention.naive import attend, pool, pool_centres, pool_starts, rotate, sees, sees_pool
from tests.dropped import assert_dropped, identity, zero

C, H = 8, 2


def build(**arguments):
    torch.manual_seed(0)
    defaults = {"window": Window(2), "pooled_window": Window(5), "pooling": Pooling(3, 2), "pool_type": "mean"}
    return TwoLevelAttention(C, H, **{**defaults, **arguments}).double().eval()


def split(x):
    return x.view(*x.shape[:2], H, -1).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).flatten(2)


def expected_output(module, x, global_mask, padding, theta=None):
    """eq. 1–8, 12–13 and T 2.15, with Mix, weight sharing and separate global projections as DESIGN has them.

    With ``theta``, queries and keys have rotary positions.
    """
    tokens = x.size(1)

    def turn(x, places):
        return x if theta is None else rotate(x, places, theta)

    def turned(query, key, value):
        return turn(split(query), torch.arange(tokens)), turn(split(key), torch.arange(tokens)), split(value)

    def level_one(b, h, t, s):
        inside = sees(t, s, left=module.window.left, right=module.window.right)
        return (inside or global_mask[b, s] or global_mask[b, t]) and not padding[b, s]

    q, k, v = turned(module.q_proj(x), module.k_proj(x), module.v_proj(x))
    level_two_scale = (module.embed_dim // H) ** -0.5
    scale = module.scale or level_two_scale
    y = attend(q, k, v, level_one, scale)
    if module.global_q_proj is not None:
        projections = (module.global_q_proj, module.global_k_proj, module.global_v_proj)
        everything = attend(*turned(*(p(x) for p in projections)), lambda b, h, t, s: not padding[b, s], scale)
        y = torch.where(global_mask[:, None, :, None], everything, y)
    if module.pooling is None:
        return module.out_proj(merge(y))
    source = x if module.mix else merge(y)
    own = module.pooled_q_proj is not None
    names = ("pooled_q_proj", "pooled_k_proj", "pooled_v_proj") if own else ("q_proj", "k_proj", "v_proj")
    q, k, v = (split(getattr(module, name)(source)) for name in names)
    geometry = dataclasses.asdict(module.pooling)
    starts = pool_starts(tokens, **geometry)
    arguments = {"kernel_size": module.pooling.kernel_size, "kind": module.pool_type, "padding": padding}
    k, empty = pool(k, starts, weight=module.pooled_k_pool_weight, **arguments)
    v, _ = pool(v, starts, weight=module.pooled_v_pool_weight, **arguments)
    q = turn(q, torch.arange(tokens))
    k = turn(k, pool_centres(starts, kernel_size=module.pooling.kernel_size, padding=padding))

    def level_two(b, h, t, s):
        reach = {"left": module.pooled_window.left, "right": module.pooled_window.right}
        return sees_pool(t, s, **reach, **geometry) and not empty[b, s]

    return module.out_proj(merge(y + attend(q, k, v, level_two, level_two_scale)))


def example():
    """The last two rows have queries that see nothing: padding farther than w2 from any token, and no token at all."""
    torch.manual_seed(1)
    x = torch.randn(4, 13, C, dtype=torch.float64)
    global_mask = torch.zeros(4, 13, dtype=torch.bool)
    global_mask[0, 0] = global_mask[0, 7] = global_mask[1, 0] = True
    padding = torch.arange(13) >= torch.tensor([13, 8, 2, 0])[:, None]
    return x, global_mask, padding


@pytest.mark.parametrize("seed", range(6))
def test_random_geometry(seed):
    """Windows with unequal sides, in any of the layer's variants; outputs at padding too."""
    rng = random.Random(seed)
    windows = {name: Window(rng.randint(0, 6), rng.randint(0, 6)) for name in ("window", "pooled_window")}
    pooling = Pooling(rng.randint(1, 5), rng.randint(1, 4), rng.choice(["grid", "query"]))
    mix, share, separate = (rng.random() < 0.5 for _ in range(3))
    kind = {"pool_type": rng.choice(POOL_TYPES), "separate_global_projections": separate}
    module = build(**windows, pooling=pooling, mix=mix, share_weights=share, **kind)
    x, global_mask, padding = example()
    inputs = [x.requires_grad_(), *module.parameters()]
    expected = expected_output(module, x, global_mask, padding)
    grad = torch.randn_like(x)
    wanted = torch.autograd.grad(expected, inputs, grad)
    for module.backend in ("block", "reference"):
        out = module(x, masks=Masks(global_mask, padding))
        torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
        for actual, gradient in zip(torch.autograd.grad(out, inputs, grad), wanted, strict=True):
            torch.testing.assert_close(actual, gradient, atol=1e-11, rtol=0)


@pytest.mark.parametrize(
    ("pool_type", "ldconv_heads"), [("max", 1), ("mean", 1), *itertools.product(["ldconv", "mean-ldconv"], [1, 2])]
)
@pytest.mark.parametrize("alignment", ["grid", "query"])
@pytest.mark.parametrize(("mix", "share"), list(itertools.product([False, True], repeat=2)))
def test_two_levels(pool_type, ldconv_heads, alignment, mix, share):
    module = build(
        pool_type=pool_type,
        pooling=Pooling(3, 2, alignment),
        mix=mix,
        share_weights=share,
        ldconv_heads=ldconv_heads,
    )
    x, global_mask, padding = example()
    inputs = [x.requires_grad_(), *module.parameters()]
    grad = torch.randn(x.shape, dtype=x.dtype).masked_fill_(padding[..., None], 0.0)
    expected = expected_output(module, x, global_mask, padding)
    out = module(x, global_mask=global_mask, key_padding_mask=padding)
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
    expected_grads = torch.autograd.grad(expected, inputs, grad)
    for actual, wanted in zip(torch.autograd.grad(out, inputs, grad), expected_grads, strict=True):
        torch.testing.assert_close(actual, wanted, atol=1e-11, rtol=0)


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("scale", [None, 2.0])
@torch.no_grad()
def test_separate_global_projections(pooled, scale):
    levels = {} if pooled else {"pooling": None, "pooled_window": None}
    module = build(separate_global_projections=True, scale=scale, **levels)
    x, global_mask, padding = example()
    out = module(x, global_mask=global_mask, key_padding_mask=padding)
    torch.testing.assert_close(out, expected_output(module, x, global_mask, padding), atol=1e-12, rtol=0)


def test_time_first_is_the_same_attention_with_the_same_gradients():
    x, global_mask, padding = example()
    results = []
    for batch_first in (True, False):
        module = build(batch_first=batch_first, separate_global_projections=True, pool_type="ldconv")
        given = x if batch_first else x.transpose(0, 1)
        out = module(given, global_mask=global_mask, key_padding_mask=padding)
        (out if batch_first else out.transpose(0, 1)).pow(2).sum().backward()
        results.append({name: p.grad for name, p in module.named_parameters()})
    assert results[0].keys() == results[1].keys()
    for name, grad in results[0].items():
        torch.testing.assert_close(grad, results[1][name], atol=1e-10, rtol=0)
        assert grad.abs().max() > 0, name


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"pooling": None}, "together"),
        ({"pool_type": "sum"}, "pool_type"),
        ({"ldconv_heads": 3}, "ldconv_heads"),
    ],
)
def test_bad_arguments_are_named(arguments, word):
    with pytest.raises(ValueError, match=word):
        build(**arguments)


def test_score_terms_are_not_lost_in_global_projections():
    attention = TwoLevelAttention(8, 2, window=Window(2), separate_global_projections=True)
    term = RelativePositionBias(torch.zeros(2, 5))
    with pytest.raises(ValueError, match="do not go together"):
        attention(torch.zeros(1, 4, 8), score_terms=(term,))


@pytest.mark.parametrize("level", ["one", "two", "global"])
@torch.no_grad()
def test_each_level_drops_its_weights_in_training(level):
    """The values are the rows of an identity, so that the output is the weights."""
    torch.manual_seed(0)
    tokens = 32
    pooling = {"pooled_window": Window(9), "pooling": Pooling(1, 1), "pool_type": "mean", "mix": True}
    arguments = {"one": {}, "two": pooling, "global": {"separate_global_projections": True}}[level]
    module = TwoLevelAttention(tokens, 1, window=Window(5), dropout=0.25, **arguments)
    x, global_mask = torch.eye(tokens)[None], None
    q, k, v = module.q_proj, module.k_proj, module.v_proj
    seen = (torch.arange(tokens)[:, None] - torch.arange(tokens)).abs() <= 5
    if level == "two":
        zero(v)
        q, k, v = module.pooled_q_proj, module.pooled_k_proj, module.pooled_v_proj
        seen = (torch.arange(tokens)[:, None] - torch.arange(tokens)).abs() <= 9
    elif level == "global":
        global_mask = torch.ones(1, tokens, dtype=torch.bool)
        q, k, v = module.global_q_proj, module.global_k_proj, module.global_v_proj
        seen[:] = True
    identity(v, module.out_proj)
    scores = q(x) @ k(x).transpose(1, 2) / tokens**0.5
    whole = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    torch.testing.assert_close(module.eval()(x, global_mask=global_mask), whole)
    module.train()
    assert_dropped(lambda: module(x, global_mask=global_mask), whole, 0.25)


@pytest.mark.parametrize(("mix", "share_weights", "products"), [(True, True, 1), (False, True, 2), (True, False, 1)])
@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj"])
def test_what_both_levels_project_is_projected_once(name, mix, share_weights, products):
    module, calls = build(mix=mix, share_weights=share_weights), []
    getattr(module, name).register_forward_hook(lambda *_: calls.append(1))
    module(torch.randn(1, 9, C, dtype=torch.float64))
    assert len(calls) == products
