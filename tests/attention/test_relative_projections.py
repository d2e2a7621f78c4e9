"""A layer's projections of shared relative positions, against T 2.18–2.25 written out for one pair after another."""

import pytest
import torch

from fairseq_poolingformer.attention import Pairs, RelativeProjections, TwoLevelAttention, Window

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


def expected_row(relative, attention, x, tables, i, seen, is_global):
    """Y of query i, (H, D), from the sums of its three products with each key."""
    q, k, v = (split(projection(x)) for projection in (attention.q_proj, attention.k_proj, attention.v_proj))
    scores = []
    for j in seen:
        if i in is_global or j in is_global:
            table, prefix = tables[1], "global_"
            row = min(max((i - j) // 6, -K_G), K_G - 1) + K_G
        else:
            table, prefix = tables[0], ""
            row = 0 if i - j <= -K else 2 * K - 1 if i - j >= K else i - j + K
        score = (q[:, i] * k[:, j]).sum(1)
        if "c2p" in relative.products:
            score = score + (q[:, i] * getattr(relative, prefix + "k_proj")(table[row]).view(H, -1)).sum(1)
        if "p2c" in relative.products:
            score = score + (k[:, j] * getattr(relative, prefix + "q_proj")(table[row]).view(H, -1)).sum(1)
        scores.append(score / ((1 + len(relative.products)) * C // H) ** 0.5)
    weights = torch.stack(scores, 1).softmax(1)
    return (weights[..., None] * v[:, seen]).sum(1)


@pytest.mark.parametrize("backend", ["reference", "block"])
@pytest.mark.parametrize("products", [("c2p", "p2c"), ("c2p",), ("p2c",)])
@pytest.mark.parametrize(
    ("width", "reach", "globals_"), [(4, 4, [0, 9]), (6, 6, [0, 9]), (4, None, []), (None, None, [])]
)
def test_scores_and_gradients(backend, products, width, reach, globals_):
    window = Window.unlimited() if width is None else Window(width)
    relative, attention, tables = build(window, products, reach, coarse=bool(globals_))
    attention.backend = backend
    x = torch.randn(T, C, dtype=torch.float64)
    mask = torch.zeros(1, T, dtype=torch.bool)
    mask[0, globals_] = True
    term = relative(*tables[: 1 + bool(globals_)])
    actual = attention(x[None], global_mask=mask if globals_ else None, score_terms=(term,))[0]
    rows = []
    for i in range(T):
        near = [j for j in range(T) if width is None or abs(i - j) <= width or i in globals_ or j in globals_]
        rows.append(expected_row(relative, attention, x, tables, i, near, globals_).flatten())
    expected = attention.out_proj(torch.stack(rows))
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=0)
    inputs = [*tables[: 1 + bool(globals_)], *relative.parameters()]
    grad = torch.randn(expected.shape, dtype=torch.float64)
    wanted = torch.autograd.grad(expected, inputs, grad)
    assert all(gradient.abs().max() > 1e-3 for gradient in wanted)
    for found, gradient in zip(torch.autograd.grad(actual, inputs, grad), wanted, strict=True):
        torch.testing.assert_close(found, gradient, atol=1e-10, rtol=0)


def test_buckets_of_a_global_token():
    """Of 18 tokens, 3 buckets a side: the keys 1 to 6 of <s> share a row, as do 7 to 12; it is at distance 0 itself."""
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
    relative = RelativeProjections(C, H, dropout=0.5)
    positions = torch.ones(2 * K, C)
    assert torch.equal(relative.eval()(positions).c2p, relative(positions).c2p)
    rows = relative.train()(positions).c2p.transpose(0, 1).flatten(1)
    assert not torch.allclose(rows[0], rows[1])


def test_products_are_known():
    with pytest.raises(ValueError, match="products"):
        RelativeProjections(C, H, products=("p2p",))
    with pytest.raises(ValueError, match="products"):
        RelativeProjections(C, H, products=())
