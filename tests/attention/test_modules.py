"""TwoLevelAttention against the equations written out for one token after another."""

import dataclasses
import random

import pytest
import torch

from fairseq_poolingformer.attention import POOL_TYPES, Masks, Pooling, RelativePositionBias, TwoLevelAttention, Window
from tests.attention.calls import with_gradients
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
    places = torch.arange(x.size(1))

    def turn(x, places):
        return x if theta is None else rotate(x, places, theta)

    def turned(*projections):
        q, k, v = (split(projection(x)) for projection in projections)
        return turn(q, places), turn(k, places), v

    def level_one(b, h, t, s):
        inside = sees(t, s, left=module.window.left, right=module.window.right)
        return (inside or global_mask[b, s] or global_mask[b, t]) and not padding[b, s]

    level_two_scale = (module.embed_dim // H) ** -0.5
    scale = module.scale or level_two_scale
    y = attend(*turned(module.q_proj, module.k_proj, module.v_proj), level_one, scale)
    if module.global_q_proj is not None:
        q, k, v = turned(module.global_q_proj, module.global_k_proj, module.global_v_proj)
        everything = attend(q, k, v, lambda b, h, t, s: not padding[b, s], scale)
        y = torch.where(global_mask[:, None, :, None], everything, y)
    if module.pooling is None:
        return module.out_proj(merge(y))
    source = x if module.mix else merge(y)
    prefix = "" if module.pooled_q_proj is None else "pooled_"
    q, k, v = (split(getattr(module, f"{prefix}{letter}_proj")(source)) for letter in "qkv")
    geometry = dataclasses.asdict(module.pooling)
    starts = pool_starts(x.size(1), **geometry)
    arguments = {"kernel_size": module.pooling.kernel_size, "kind": module.pool_type, "padding": padding}
    k, empty = pool(k, starts, weight=module.pooled_k_pool_weight, **arguments)
    v, _ = pool(v, starts, weight=module.pooled_v_pool_weight, **arguments)
    k = turn(k, pool_centres(starts, kernel_size=module.pooling.kernel_size, padding=padding))

    def level_two(b, h, t, s):
        reach = {"left": module.pooled_window.left, "right": module.pooled_window.right}
        return sees_pool(t, s, **reach, **geometry) and not empty[b, s]

    return module.out_proj(merge(y + attend(turn(q, places), k, v, level_two, level_two_scale)))


def example():
    """The last two rows have queries that see nothing: padding farther than w2 from any token, and no token at all."""
    torch.manual_seed(1)
    x = torch.randn(4, 13, C, dtype=torch.float64)
    global_mask = torch.zeros(4, 13, dtype=torch.bool)
    global_mask[0, 0] = global_mask[0, 7] = global_mask[1, 0] = True
    padding = torch.arange(13) >= torch.tensor([13, 8, 2, 0])[:, None]
    return x, global_mask, padding


def random_layer(seed, **options):
    """Unequal sides of windows, and one of 32 variants of pools, mix and weight sharing; from 32 on level one alone."""
    rng = random.Random(seed)
    levels = {name: Window(rng.randint(0, 6), rng.randint(0, 6)) for name in ("window", "pooled_window")}
    levels["pooling"] = Pooling(rng.randint(1, 5), rng.randint(1, 4), ("grid", "query")[seed // 4 % 2])
    if seed >= 32:
        levels |= {"pooled_window": None, "pooling": None}
    variant = {"pool_type": POOL_TYPES[(seed + seed // 8) % 4], "ldconv_heads": rng.choice([1, 2])}
    variant |= {"mix": seed // 16 % 2 == 1, "share_weights": seed // 8 % 2 == 1, "scale": rng.choice([None, 2.0])}
    variant |= {"separate_global_projections": rng.random() < 0.5, "batch_first": rng.random() < 0.5}
    return build(**levels, **{**variant, **options})


def check(module, rotary=None, theta=None):
    """Outputs, at padding too, and all gradients of both backends."""
    x, global_mask, padding = example()
    inputs = [x.requires_grad_(), *module.parameters()]
    expected = with_gradients(expected_output(module, x, global_mask, padding, theta), inputs)
    for module.backend in ("block", "reference"):
        tokens = x if module.batch_first else x.transpose(0, 1)
        out = module(tokens, masks=Masks(global_mask, padding), rotary=rotary)
        actual = with_gradients(out if module.batch_first else out.transpose(0, 1), inputs)
        torch.testing.assert_close(actual, expected, atol=1e-11, rtol=0)


@pytest.mark.parametrize("seed", range(36))
def test_layers_are_the_equations(seed):
    check(random_layer(seed))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"pooling": None}, "together"),
        ({"pool_type": "sum"}, "pool_type"),
        ({"ldconv_heads": 3}, "ldconv_heads"),
        ({"separate_global_projections": True}, "do not go together"),  # with score terms, which would be lost
    ],
)
def test_bad_arguments_are_named(arguments, word):
    with pytest.raises(ValueError, match=word):
        build(**arguments)(torch.zeros(1, 4, C).double(), score_terms=(RelativePositionBias(torch.zeros(2, 5)),))


@pytest.mark.parametrize("level", ["one", "two", "softmax", "global"])
@torch.no_grad()
def test_each_level_drops_its_weights_in_training(level):
    """The values are the rows of an identity, so that the output is the weights; pools are single tokens."""
    torch.manual_seed(0)
    tokens, reach = 32, {"two": 9, "softmax": 14, "global": 99}.get(level, 5)
    pooling = {"pooled_window": Window(reach), "pooling": Pooling(1, 1), "pool_type": "mean"}
    arguments = {"two": {**pooling, "mix": True}, "softmax": {**pooling, "pool_merge": "softmax"}}
    arguments = arguments | {"one": {}, "global": {"separate_global_projections": True}}
    module = TwoLevelAttention(tokens, 1, window=Window(5), dropout=0.25, **arguments[level])
    x, global_mask = torch.eye(tokens)[None], torch.ones(1, tokens).bool() if level == "global" else None
    if level == "two":
        zero(module.v_proj)
    prefix = {"two": "pooled_", "global": "global_"}.get(level, "")
    q, k, v = (getattr(module, f"{prefix}{letter}_proj") for letter in "qkv")
    identity(v, module.out_proj)
    visible = (torch.arange(tokens)[:, None] - torch.arange(tokens)).abs() <= reach
    scores = q(x) @ k(x).transpose(1, 2) / tokens**0.5
    whole = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    torch.testing.assert_close(module.eval()(x, global_mask=global_mask), whole)
    module.train()
    assert_dropped(lambda: module(x, global_mask=global_mask), whole, 0.25)


def test_one_softmax_has_pools_where_one_side_of_the_window_ends():
    """With pools of one token it is full attention, also where the other side holds the whole text."""
    x = torch.randn(1, 13, C, dtype=torch.float64)
    for window in (Window(12, 0), Window(0, 12), Window(20, 3)):
        wide = {"pooled_window": Window.unlimited(), "pooling": Pooling(1, 1), "pool_merge": "softmax"}
        full = build(window=Window.unlimited(), pooled_window=None, pooling=None)
        torch.testing.assert_close(build(window=window, **wide)(x), full(x), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("mix", "share_weights", "products"), [(True, True, 1), (False, True, 2), (True, False, 1)])
@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj"])
def test_what_both_levels_project_is_projected_once(name, mix, share_weights, products):
    module, calls = build(mix=mix, share_weights=share_weights), []
    getattr(module, name).register_forward_hook(lambda *_: calls.append(1))
    module(torch.randn(1, 9, C, dtype=torch.float64))
    assert len(calls) == products
