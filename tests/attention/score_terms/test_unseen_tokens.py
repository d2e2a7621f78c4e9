"""One softmax over tokens and pools: against loops over tokens, and against full attention."""

import itertools
import math
import random

import pytest
import torch
import torch.nn.functional as F

from fairseq_poolingformer.attention import Pooling, RelativePositionBias, TwoLevelAttention, Window, band_attention
from fairseq_poolingformer.attention.score_terms.relative_bias import distance_bias
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens
from tests.attention.calls import (
    FAST,
    assert_equals_reference,
    assert_error_at_most_twice_the_references,
    right_padding,
    tensors,
    with_gradients,
)
from tests.attention.naive import attend, pool, pool_centres, rotate, sees, sees_pool
from tests.attention.test_modules import C, H, merge, split
from tests.attention.test_rotary import THETA, rotary_of

BACKENDS = [*FAST, "reference"]


def build(w1=2, w2=9, size=3, **arguments):
    torch.manual_seed(0)
    w1, w2 = (w if isinstance(w, tuple) else (w,) for w in (w1, w2))
    geometry = {"window": Window(*w1), "pooled_window": Window(*w2), "pooling": Pooling(size, size)}
    options = {"pool_type": "mean", "pool_merge": "softmax"}
    return TwoLevelAttention(C, H, **{**geometry, **options, **arguments}).double()


def example(tokens=17, lengths=(17, 14, 2, 0)):
    """The last two rows have queries that see nothing: padding farther than w2 from any token, and no token at all."""
    torch.manual_seed(1)
    padding = right_padding(lengths, tokens)
    padding[0, 7:9] = padding[1, 3] = True
    global_mask = torch.zeros_like(padding)
    global_mask[0, 0] = global_mask[0, 10] = global_mask[1, 12:14] = True
    return torch.randn(len(lengths), tokens, C, dtype=torch.float64), global_mask, padding


def expected_output(module, x, global_mask, padding, table=None, theta=None):
    """A row at a time: keys are the tokens, then the pools, each of which counts as its tokens that are not seen."""
    tokens, size, window = x.size(1), module.pooling.kernel_size, module.window
    q, k, v = (split(projection(x)) for projection in (module.q_proj, module.k_proj, module.v_proj))
    starts = range(0, tokens, size)
    weights = module.pooled_k_pool_weight, module.pooled_v_pool_weight
    how = {"kernel_size": size, "kind": module.pool_type, "padding": padding}
    pooled_k, pooled_v = (pool(y, starts, weight=w, **how)[0] for y, w in zip((k, v), weights, strict=True))
    if theta is not None:
        q, k = (rotate(y, torch.arange(tokens), theta) for y in (q, k))
        pooled_k = rotate(pooled_k, pool_centres(starts, kernel_size=size, padding=padding), theta)
    grid = {"left": module.pooled_window.left, "right": module.pooled_window.right, "kernel_size": size}
    keys, values = torch.cat([k, pooled_k], 2), torch.cat([v, pooled_v], 2)
    scale, rows = (C // H) ** -0.5, []
    for b in range(len(x)):

        def sees_token(t, s, b=b):
            inside = sees(t, s, left=window.left, right=window.right)
            return bool((inside or global_mask[b, s] or global_mask[b, t]) and not padding[b, s])

        def count(t, p, b=b):
            of_pool = [s for s in range(starts[p], min(starts[p] + size, tokens)) if not padding[b, s]]
            visible = sees_pool(t, p, **grid, stride=size, alignment="grid")
            return sum(not sees_token(t, s) for s in of_pool) if visible else 0

        def by_distance(h, distance):
            return 0.0 if table is None else table[h, max(-3, min(3, distance)) + 3]

        def bias(h, t, s):
            if s < tokens:
                return by_distance(h, t - s)
            start = starts[s - tokens]
            return math.log(count(t, s - tokens)) + sum(by_distance(h, t - start - m) for m in range(size)) / size

        def visible(_, h, t, s):
            return sees_token(t, s) if s < tokens else count(t, s - tokens) > 0

        places = range(keys.size(2))
        biases = [
            [[bias(h, t, s) if visible(0, h, t, s) else 0.0 for s in places] for t in range(tokens)] for h in range(H)
        ]
        row = slice(b, b + 1)
        rows.append(attend(q[row], keys[row], values[row], visible, module.scale or scale, biases))
    out = torch.cat(rows)
    if module.global_q_proj is not None:
        q, k, v = (split(p(x)) for p in (module.global_q_proj, module.global_k_proj, module.global_v_proj))
        of_global = attend(q, k, v, lambda b, h, t, s: not padding[b, s], scale)
        out = torch.where(global_mask[:, None, :, None], of_global, out)
    return module.out_proj(merge(out))


def check(module, table=None, theta=None, **arguments):
    """Outputs and all gradients of every backend."""
    x, global_mask, padding = example()
    inputs = [x.requires_grad_(), *module.parameters(), *([] if table is None else [table])]
    expected = with_gradients(expected_output(module, x, global_mask, padding, table, theta), inputs)
    for module.backend in BACKENDS:
        out = module(x, global_mask=global_mask, key_padding_mask=padding, **arguments)
        torch.testing.assert_close(with_gradients(out, inputs), expected, atol=1e-11, rtol=0)


@pytest.mark.parametrize(
    ("w1", "w2", "size"),
    [(2, 9, 3), (0, 40, 4), (5, 8, 2), (1, 12, 7), (3, 2**40, 1), ((16, 1), (4, 13), 3), ((0, 16), (11, 2), 2)],
)
def test_one_softmax(small_blocks, w1, w2, size):
    check(build(w1, w2, size))


@pytest.mark.parametrize(("pool_type", "ldconv_heads"), [("ldconv", 1), ("mean-ldconv", 2)])
def test_learned_pools(small_blocks, pool_type, ldconv_heads):
    module = build(pool_type=pool_type, ldconv_heads=ldconv_heads)
    for weight in (module.pooled_k_pool_weight, module.pooled_v_pool_weight):
        torch.nn.init.normal_(weight)
    check(module)


def test_short_texts_give_the_bits_of_a_window_and_every_parameter_a_gradient():
    """Or several GPUs would wait for it."""
    module, window = build(16, pool_type="ldconv"), TwoLevelAttention(C, H, window=Window(16)).double()
    window.load_state_dict(module.state_dict(), strict=False)
    x, global_mask, padding = example()
    masks = {"global_mask": global_mask, "key_padding_mask": padding}
    out = module(x, **masks)
    assert torch.equal(out, window(x, **masks))
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    assert not module.pooled_k_pool_weight.grad.any()


@pytest.mark.parametrize("pool_type", ["mean", "ldconv"])
def test_scores_by_distance_and_rotary_positions(pool_type):
    module = build(scale=0.7, pool_type=pool_type)
    table = torch.randn(H, 7, dtype=torch.float64, requires_grad=True)
    check(module, table, score_terms=(RelativePositionBias(table),))
    _, _, padding = example()
    check(module, theta=THETA, rotary=rotary_of(torch.arange(padding.size(1))[None], module.pooling, padding))


def test_separate_global_projections():
    check(build(separate_global_projections=True))


@pytest.mark.parametrize("backend", BACKENDS)
@torch.no_grad()
def test_it_is_full_attention_where_the_tokens_of_each_pool_are_equal(backend):
    rng = random.Random(0)
    for tokens, w1, size in itertools.product([1, 64, 131, 300], [0, 32], [1, 4, 37]):
        module = build(w1, 10**6, size, backend=backend, pool_type=rng.choice(["mean", "ldconv"]))
        x = torch.randn(2, -(-tokens // size), C, dtype=torch.float64).repeat_interleave(size, 1)[:, :tokens]
        padding = torch.rand(2, tokens) < rng.choice([0, 0.3])
        global_mask = torch.rand(2, tokens) < rng.choice([0, 0.1])
        q, k, v = (split(projection(x)) for projection in (module.q_proj, module.k_proj, module.v_proj))
        full = F.scaled_dot_product_attention(q, k, v, attn_mask=~padding[:, None, None])
        expected = module.out_proj(full.nan_to_num(0.0).transpose(1, 2).flatten(2))
        out = module(x, global_mask=global_mask, key_padding_mask=padding)
        torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)


@torch.no_grad()
def test_padding_and_neighbours_change_nothing():
    module, x = build(5, 60, 4), torch.randn(1, 203, C, dtype=torch.float64)
    global_mask = torch.arange(203)[None] == 0
    alone = module(x, global_mask=global_mask)
    batch = torch.cat([F.pad(x, (0, 0, 0, 40), value=torch.nan), torch.randn(1, 243, C).double()])
    both = torch.cat([F.pad(global_mask, (0, 40)), torch.rand(1, 243) < 0.1])
    out = module(batch, global_mask=both, key_padding_mask=right_padding([203, 243], 243))
    torch.testing.assert_close(out[:1, :203], alone, atol=1e-14, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_small_dtypes(dtype):
    x, global_mask, padding = example(300, (300, 211))

    def run(backend, inputs):
        (tokens,) = inputs
        module = build(9, 64, 4, backend=backend).to(tokens.dtype)
        out = module(tokens, global_mask=global_mask, key_padding_mask=padding)
        return out, *torch.autograd.grad(out.sum(), [tokens, module.q_proj.weight])

    assert_error_at_most_twice_the_references(run, [x.to(dtype).requires_grad_()], dtype)


@torch.no_grad()
def test_weights_do_not_depend_on_global_tokens_projections():
    x, global_mask, padding = example()
    separate, module, masks = build(separate_global_projections=True), build(), {"key_padding_mask": padding}
    module.load_state_dict(
        {name: value for name, value in separate.state_dict().items() if not name.startswith("global_")}
    )
    for actual, expected in zip(
        *(m.weights(x, global_mask=global_mask, **masks) for m in (separate, module)), strict=True
    ):
        torch.testing.assert_close(actual.band, expected.band, atol=1e-12, rtol=0)


@pytest.mark.parametrize("pool_type", ["mean", "ldconv"])
@torch.no_grad()
def test_weights_are_those_of_the_output(pool_type):
    x, global_mask, padding = example()
    module, masks = build(pool_type=pool_type), {"global_mask": global_mask, "key_padding_mask": padding}
    value = split(module.v_proj(x))
    how = {"kernel_size": 3, "kind": pool_type, "padding": padding}
    pooled, _ = pool(value, range(0, 17, 3), weight=module.pooled_v_pool_weight, **how)
    levels = zip(module.weights(x, **masks), (value, pooled), strict=True)
    out = sum(torch.stack([weights.of_query(t) for t in range(17)], 2) @ values for weights, values in levels)
    torch.testing.assert_close(module.out_proj(merge(out)), module(x, **masks), atol=1e-12, rtol=0)


@pytest.mark.parametrize("padded", [False, True])
def test_the_operator_with_other_terms_offsets_and_windows(small_blocks, padded):
    counted, unlimited = torch.rand(2, 50) < (0.7 if padded else 2.0), Window.unlimited()
    for left, right, offset, reach in [(0, 0, 9, Window(17)), (6, 0, 9, unlimited), (0, 5, 0, Window(9, 30))]:
        pooling = Pooling(4, 4)
        unseen = UnseenTokens(Window(left, right), pooling, counted)
        table = torch.randn(2, 9, dtype=torch.float64, requires_grad=True)
        arguments = {"window": reach, "pooling": pooling, "query_offset": offset, "return_lse": True}
        arguments["key_padding_mask"] = unseen.of_pool == 0
        for terms, extra in (((unseen,), ()), ((unseen, distance_bias(table)), (table,))):
            assert_equals_reference(tensors(2, 2, 31, 13, 4), "block", extra, score_terms=terms, **arguments)


@torch.no_grad()
def test_exported_it_takes_any_length():
    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = build()

        def forward(self, x, padding):
            return self.layer(x, key_padding_mask=padding)

    def inputs(tokens):
        return torch.randn(2, tokens, C).double(), right_padding([tokens, tokens - 4], tokens)

    length, module = torch.export.Dim("length", min=5, max=4096), Masked()
    exported = torch.export.export(module, inputs(30), dynamic_shapes=({1: length}, {1: length})).module()
    for tokens in (5, 41, 64):
        x, padding = inputs(tokens)
        torch.testing.assert_close(exported(x, padding), module(x, padding), atol=1e-12, rtol=0)


ONCE = "'softmax' counts every token once"
UNSEEN = UnseenTokens(Window(1), Pooling(3, 3), torch.ones(1, 9).bool())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build(pooling=Pooling(5, 4)), ONCE),
        (lambda: build(pooling=Pooling(4, 4, "query")), ONCE),
        (lambda: build(pool_type="max"), ONCE),
        (lambda: build(mix=True), ONCE),
        (lambda: build(window=Window(2, dilation=2)), ONCE),
        (lambda: build(pool_merge="mean"), "pool_merge must be one of"),
        (
            lambda: build()(torch.zeros(1, 9, C).double(), score_terms=(UNSEEN,)),
            "a UnseenTokens has no scores for pools",
        ),
        (lambda: band_attention(*tensors(1, 2, 9, 9, 4), window=Window(3), score_terms=(UNSEEN,)), "counts 3 pools"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
