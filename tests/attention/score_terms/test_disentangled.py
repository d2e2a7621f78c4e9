"""Disentangled scores: by hand, against loops, backends against the reference, and Hugging Face's DeBERTa."""

import math
import random

import pytest
import torch

from fairseq_poolingformer.attention import (
    DisentangledPosition,
    Pairs,
    Pooling,
    RelativePositionBias,
    RelativeProjections,
    TwoLevelAttention,
    Window,
    band_attention,
)
from fairseq_poolingformer.attention.backends.block import disentangled, lanes
from tests.attention.calls import (
    FAST,
    ON_CPU,
    Largest,
    assert_equals_reference,
    assert_error_at_most_twice_the_references,
    outputs_and_gradients,
    right_padding,
    tensors,
    with_gradients,
)
from tests.attention.naive import attend, sees

TABLES = ("c2p", "p2c", "global_c2p", "global_p2c")


def tables(heads, k, coarse, head_dim, names=TABLES, seed=0):
    """Random tables by name, those of global tokens of 2·``coarse`` rows."""
    options = {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
    rows = {name: 2 * (coarse if "global" in name else k) for name in names}
    return {name: torch.randn(heads, n, head_dim, **options).requires_grad_() for name, n in rows.items()}


@pytest.mark.parametrize("backend", ON_CPU)
def test_by_hand(backend):
    """Five tokens, window 1, k 1, all contents 1: weights are powers of two that can be read off.

    Row 0 is of keys after the query, row 1 of the query itself and of those before it. Token 4 is global, and two
    distances share a row of the coarse tables: rows 0 … 3 are of distances below −2, −2 and −1, 0 and 1, 2 and more.
    """
    query, key = torch.full((1, 1, 5, 5), 0.2).double(), torch.ones(1, 1, 5, 5).double()
    value = torch.eye(5, dtype=torch.float64)[None, None]

    def table(*rows):
        return torch.tensor(rows, dtype=torch.float64)[None, :, None].expand(1, -1, 5).contiguous()

    def check(weights, global_mask=None, **tables):
        arguments = {"window": Window(1), "scale": math.log(2), "backend": backend, "global_mask": global_mask}
        actual = band_attention(query, key, value, score_terms=[DisentangledPosition(**tables)], **arguments)[0, 0]
        weights = torch.tensor(weights).double()
        torch.testing.assert_close(actual, weights / weights.sum(1, keepdim=True))

    # after: c2p 1, p2c 5 · 0.2 = 1; itself and before: 2 and 0; all of them 2² and the content's 2¹
    near = [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 0, 1, 1]]
    check(near, c2p=table(1.0, 2.0), p2c=table(0.2, 0.0))
    near = [[1, 2, 0, 0, 0], [1, 1, 2, 0, 0], [0, 1, 1, 2, 0], [0, 0, 1, 1, 2], [0, 0, 0, 1, 1]]
    check(near, c2p=table(3.0, 2.0))
    # token 4's distances from 0 … 4: 0 and 1 have 2^(3 + 2), 2 and more 2^(4 + 3); to it −1 and −2 2^(2 + 1), less 2
    near = [[1, 1, 0, 0, 2], [1, 1, 1, 0, 2], [0, 1, 1, 1, 8], [0, 0, 1, 1, 8], [128, 128, 128, 32, 32]]
    coarse = {"global_c2p": table(1.0, 2.0, 3.0, 4.0), "global_p2c": table(0.0, 0.2, 0.4, 0.6), "global_bucket": 2}
    check(near, torch.arange(5)[None] == 4, c2p=table(0.0, 0.0), p2c=table(0.0, 0.0), **coarse)


def naive(q, k, v, visible, scale, tables, bucket, offset, global_mask):
    """The operator with the scores of tables (H, 2k, D), pair by pair (T 2.18, T 2.25)."""

    def bias(b, h, t, s):
        i = t + offset
        prefix = "global_" if global_mask[b, s] or global_mask[b, i] else ""
        fine, total = not prefix, 0.0
        for name, x in (("c2p", q[b, h, t]), ("p2c", k[b, h, s])):
            if (table := tables.get(prefix + name)) is not None:
                half = table.size(1) // 2
                distance = i - s if fine else math.floor((i - s) / bucket)
                row = 0 if distance <= -half else 2 * half - 1 if distance >= half else distance + half
                total += x @ table[h, row]
        return scale * total

    heads, queries, keys = range(q.size(1)), range(q.size(2)), range(k.size(2))
    rows = []
    for b in range(len(q)):
        biases = [[[bias(b, h, t, s) for s in keys] for t in queries] for h in heads]
        row = slice(b, b + 1)
        rows.append(attend(q[row], k[row], v[row], lambda _, h, t, s, b=b: visible(b, h, t, s), scale, biases))
    return torch.cat(rows)


@pytest.mark.parametrize("names", [TABLES, ("c2p", "global_c2p"), ("p2c", "global_p2c")])
def test_reference_equals_loops(names):
    inputs = [x.detach() for x in tensors(2, 2, 6, 11, 3)]
    of_distances = {name: x.detach() for name, x in tables(2, 3, 2, 3, names).items()}
    global_mask = torch.zeros(2, 11, dtype=torch.bool)
    global_mask[0, 0] = global_mask[0, 5] = True  # row 1 has none
    padding = right_padding([11, 8], 11)

    def visible(b, h, t, s):
        through = sees(t + 2, s, left=3, right=2) or global_mask[b, s] or global_mask[b, t + 2]
        return through and not padding[b, s]

    arguments = {"window": Window(3, 2), "global_mask": global_mask, "key_padding_mask": padding, "query_offset": 2}
    arguments["score_terms"] = [DisentangledPosition(**of_distances, global_bucket=3)]
    out = band_attention(*inputs, scale=0.7, backend="reference", **arguments)
    expected = naive(*inputs, visible, 0.7, of_distances, 3, 2, global_mask)
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)


def random_call(rng, case):
    batch, heads, head_dim = rng.randint(1, 3), rng.choice([1, 2, 4]), rng.choice([1, 3, 8])
    queries, keys = rng.randint(1, 90), rng.randint(1, 90)
    window = rng.choice([Window(0), Window(5), Window(7, 0), Window(3, 30), Window(2, 1, 3), Window.unlimited()])
    if heads > 1 and rng.random() < 0.2:
        window = Window(2, 2, tuple(rng.randint(1, 3) for _ in range(heads)))
    farthest = 1 if window.left > 99 else max(1, window.left, window.right) * max(window.head_dilations(heads))
    products = rng.choice([("c2p", "p2c"), ("c2p", "p2c"), ("c2p",), ("p2c",)])
    arguments = {"window": window, "query_offset": rng.choice([0, 0, -5, 11]), "scale": 0.5}
    names = products
    if rng.random() < 0.6:
        arguments["global_mask"] = torch.rand(batch, keys) < rng.choice([0.02, 0.3])
        names = products + tuple(f"global_{name}" for name in products)
    if rng.random() < 0.6:
        arguments["key_padding_mask"] = torch.rand(batch, keys) < rng.choice([0.2, 0.9])
    extra = tables(heads, farthest + rng.choice([0, 1, 7, 100]), rng.choice([1, 4, 20]), head_dim, names, seed=case)
    term = DisentangledPosition(**extra, global_bucket=rng.choice([1, 3, 16]))
    terms = [term, RelativePositionBias(torch.randn(heads, 5, dtype=torch.float64))] if rng.random() < 0.2 else [term]
    inputs = tensors(batch, heads, queries, keys, head_dim, seed=case)
    return inputs, list(extra.values()), {**arguments, "score_terms": terms}


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("rows", [disentangled.FEW_KEYS, 5])
def test_random_sweep(backend, rows, monkeypatch):
    monkeypatch.setattr(disentangled, "FEW_KEYS", rows)
    if rows == 5:
        monkeypatch.setattr(lanes, "MIN_BLOCK", 12)
        monkeypatch.setattr(lanes, "SCORES_PER_BLOCK", 1)
        monkeypatch.setattr(lanes, "MAX_BLOCK", 12)
    rng = random.Random(0)
    for case in range(40):
        torch.manual_seed(case)
        inputs, extra, arguments = random_call(rng, case)
        assert_equals_reference(inputs, backend, extra, **arguments, tolerance=1e-10)


@pytest.mark.parametrize("backend", FAST)
def test_window_of_several_key_blocks(backend):
    """600 tokens on each side are three key blocks; beyond k + 600 a full window reads the outermost rows."""
    inputs, extra = tensors(1, 2, 700, 700, 4), tables(2, 600, 3, 4)
    term = DisentangledPosition(**extra, global_bucket=200)
    arguments = {"global_mask": torch.arange(700)[None] == 0, "score_terms": [term], "tolerance": 1e-10}
    assert_equals_reference(inputs, backend, extra.values(), window=Window(600), **arguments)
    extra = tables(2, 40, 3, 4)
    arguments["score_terms"] = [DisentangledPosition(**extra, global_bucket=200)]
    assert_equals_reference(inputs, backend, extra.values(), window=Window.unlimited(), **arguments)


@pytest.mark.parametrize("backend", FAST)
def test_dropout_gradients_belong_to_the_same_mask(backend):
    inputs, extra = tensors(1, 2, 14, 14, 3), tables(2, 3, 2, 3)
    bias = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    arguments = {"window": Window(3), "global_mask": torch.arange(14)[None] == 4, "dropout_p": 0.4, "backend": backend}

    def run(query, key, value, bias, *tables):
        torch.manual_seed(3)
        terms = [DisentangledPosition(*tables, global_bucket=4), RelativePositionBias(bias)]
        return band_attention(query, key, value, score_terms=terms, **arguments)

    assert torch.autograd.gradcheck(run, (*inputs, bias, *extra.values()), fast_mode=True)


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("types", [["c2p", "p2c"], ["c2p"], ["p2c"]])
@pytest.mark.parametrize("k", [64, 7])
def test_equals_hugging_face(backend, types, k):
    """A window as wide as the text is DeBERTa's attention, with k beyond the text and with distances beyond k."""
    modeling = pytest.importorskip("transformers.models.deberta.modeling_deberta")
    heads, head_dim, length = 3, 8, 37
    settings = {"hidden_size": heads * head_dim, "num_attention_heads": heads, "relative_attention": True}
    settings |= {"max_relative_positions": k, "pos_att_type": types, "hidden_dropout_prob": 0.0}
    torch.manual_seed(0)
    module = modeling.DisentangledSelfAttention(modeling.DebertaConfig(attention_probs_dropout_prob=0.0, **settings))
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x = torch.randn(2, length, heads * head_dim, requires_grad=True)
    positions = torch.randn(2 * k, heads * head_dim, requires_grad=True)
    real = ~right_padding([length, 20], length)
    distance = torch.arange(length)[:, None] - torch.arange(length)
    expected, _ = module(x, real[:, None, None, :], relative_pos=distance[None], rel_embeddings=positions)

    def split(y):
        return y.unflatten(-1, (heads, -1)).transpose(-3, -2)

    query, key, value = split(module.in_proj(x)).chunk(3, -1)
    projections = {"c2p": "pos_proj", "p2c": "pos_q_proj"}
    terms = [DisentangledPosition(**{name: split(getattr(module, projections[name])(positions)) for name in types})]
    arguments = {"key_padding_mask": ~real, "score_terms": terms, "scale": ((1 + len(types)) * head_dim) ** -0.5}
    query, value = query + split(module.q_bias[None, None]), value + split(module.v_bias[None, None])
    for window in [Window.unlimited(), Window(length - 1)] if k >= length else [Window.unlimited()]:
        out = band_attention(query, key, value, window=window, backend=backend, **arguments).transpose(1, 2).flatten(2)
        torch.testing.assert_close(out[real], expected[real], atol=1e-5, rtol=0)
        grads = [
            torch.autograd.grad(y[real].square().sum(), [x, positions], retain_graph=True) for y in (out, expected)
        ]
        for a, e in zip(*grads, strict=True):
            torch.testing.assert_close(a, e, atol=1e-5 * float(e.abs().max()), rtol=0)


def test_no_tensor_grows_with_length_times_positions():
    """The largest tensor is the output: products of all tokens with all rows would be 128 times that and more."""
    length = 16_384
    inputs, extra = tensors(1, 2, length, length, 8, torch.float32), tables(2, 2048, 32, 8)
    extra = {name: x.detach().float().requires_grad_() for name, x in extra.items()}
    terms = [DisentangledPosition(**extra, global_bucket=length // 32)]
    arguments = {"window": Window(32), "global_mask": torch.arange(length)[None] < 1, "score_terms": terms}
    with Largest() as tracked:
        band_attention(*inputs, backend="block", **arguments).sum().backward()
    assert tracked.elements <= 2 * length * 8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_error_is_at_most_twice_that_of_plain_pytorch(dtype):
    leaves = *tensors(2, 2, 257, 257, 64), *tables(2, 32, 8, 64).values()
    arguments = {"window": Window(32), "global_mask": torch.arange(257).expand(2, 257) < 1, "scale": 0.07}

    def run(backend, inputs):
        terms = [DisentangledPosition(*inputs[3:], global_bucket=33)]
        return outputs_and_gradients(inputs[:3], inputs[3:], score_terms=terms, backend=backend, **arguments)

    inputs = [x.detach().to(dtype).requires_grad_() for x in leaves]
    assert_error_at_most_twice_the_references(run, inputs, dtype)


TABLE = torch.zeros(2, 6, 4)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"window": Window(4)}, "reaches 4 tokens, relative positions only k = 3"),
        ({"global_mask": torch.zeros(1, 5, dtype=torch.bool)}, "give global_c2p and global_p2c"),
        ({"pooling": Pooling(1, 1)}, "leave it out with pooling"),
        ({"score_terms": [DisentangledPosition(TABLE[:1])]}, r"c2p must be \(H, 2k, D\) = \(2, 2k, 4\)"),
    ],
)
def test_calls_that_it_is_not_for_are_named(change, word):
    x = torch.zeros(1, 2, 5, 4)
    call = {"query": x, "key": x, "value": x, "window": Window(3), "score_terms": [DisentangledPosition(TABLE, TABLE)]}
    band_attention(**call)
    band_attention(**{**call, "window": Window.unlimited(causal=True)})
    with pytest.raises(ValueError, match=f"DisentangledPosition cannot be used here: .*{word}"):
        band_attention(**{**call, **change})


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: DisentangledPosition(), "c2p, p2c, or both"),
        (lambda: DisentangledPosition(torch.zeros(2, 5, 4)), r"c2p must be \(H, 2k, D\), got \(2, 5, 4\)"),
        (lambda: DisentangledPosition(TABLE, torch.zeros(2, 8, 4)), "must have one shape"),
        (lambda: DisentangledPosition(TABLE, TABLE, global_c2p=TABLE), "give global_c2p with c2p"),
        (lambda: DisentangledPosition(TABLE, global_bucket=0), "global_bucket"),
        *((lambda p=products: RelativeProjections(C, H, products=p), "products") for products in (("p2p",), ())),
    ],
)
def test_tables_that_do_not_go_together_are_named(call, word):
    with pytest.raises(ValueError, match=word):
        call()


C, H, T = 8, 2, 14
K, K_G = 6, 3  # so that 6 distances share a row of the coarse table


def build(window, products=("c2p", "p2c"), reach=None, coarse=True):
    torch.manual_seed(0)
    relative = RelativeProjections(C, H, products=products, reach=reach, global_bucket=6 if coarse else None)
    attention = TwoLevelAttention(C, H, window=window, scale=relative.scale)
    tables = [torch.randn(2 * K, C), torch.randn(2 * K_G, C)]
    return relative.double().eval(), attention.double().eval(), [x.double().requires_grad_() for x in tables]


def split(x):
    return x.view(len(x), H, -1).transpose(0, 1)


@pytest.mark.parametrize("backend", ["reference", "block"])
@pytest.mark.parametrize("products", [("c2p", "p2c"), ("c2p",), ("p2c",)])
@pytest.mark.parametrize(
    ("width", "reach", "globals_"), [(4, 4, [0, 9]), (6, 6, [0, 9]), (4, None, []), (None, None, [])]
)
def test_scores_and_gradients(backend, products, width, reach, globals_):
    window = Window.unlimited() if width is None else Window(width)
    relative, attention, (fine, coarse) = build(window, products, reach, coarse=bool(globals_))
    attention.backend = backend
    x, mask = torch.randn(1, T, C, dtype=torch.float64), torch.zeros(1, T, dtype=torch.bool)
    mask[0, globals_] = True
    vectors = [fine, coarse][: 1 + bool(globals_)]
    term = relative(*vectors)
    actual = attention(x, global_mask=mask if globals_ else None, score_terms=(term,))
    q, k, v = (split(projection(x[0]))[None] for projection in (attention.q_proj, attention.k_proj, attention.v_proj))
    projections = {"c2p": "k_proj", "p2c": "q_proj"}
    by_hand = {
        prefix + name: split(getattr(relative, prefix + projections[name])(table))
        for prefix, table in zip(("", "global_"), vectors, strict=False)
        for name in products
    }

    def visible(b, h, t, s):
        return width is None or abs(t - s) <= width or t in globals_ or s in globals_

    scale = ((1 + len(products)) * C // H) ** -0.5
    rows = naive(q, k, v, visible, scale, by_hand, 6, 0, mask)
    expected = attention.out_proj(rows.transpose(1, 2).flatten(2))
    inputs = [*vectors, *relative.parameters()]
    actual, expected = (with_gradients(out, inputs) for out in (actual, expected))
    assert all(gradient.abs().max() > 1e-3 for gradient in expected[1:])
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=0)


def test_buckets_of_a_global_token():
    """18 tokens, 3 buckets a side: the keys 1 to 6 of <s> share a row, as do 7 to 12; it is at distance 0 itself."""
    relative, _, (fine, coarse) = build(Window(2), ("c2p",))
    query = torch.randn(1, H, 1, C // H, dtype=torch.float64)
    pairs = Pairs(range(1), range(18), query=query, key=torch.zeros(1, H, 18, C // H).double(), with_global=True)
    scores = relative(fine, coarse).scores(pairs)[0, :, 0]  # (H, 18)
    products = torch.einsum("hd,rhd->hr", query[0, :, 0], relative.global_k_proj(coarse).view(2 * K_G, H, -1))
    torch.testing.assert_close(scores, products[:, [3, *[2] * 6, *[1] * 6, *[0] * 5]])
    back = Pairs(range(17, 18), range(18), query=query, key=pairs.key, with_global=True)  # the last token's keys
    from_last = relative(fine, coarse).scores(back)[0, :, 0]
    torch.testing.assert_close(from_last, products[:, [*[5] * 6, *[4] * 6, *[3] * 6]])


def test_dropout_is_of_positions_and_in_training_only():
    relative, positions = RelativeProjections(C, H, dropout=0.5), torch.ones(2 * K, C)
    assert torch.equal(relative.eval()(positions).c2p, relative(positions).c2p)
    rows = relative.train()(positions).c2p.transpose(0, 1).flatten(1)
    assert not torch.allclose(rows[0], rows[1])
