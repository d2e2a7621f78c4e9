"""Second derivatives of every autograd function are refused; gradients with a graph are those without one."""

import ast
from pathlib import Path

import pytest
import torch
from torch.autograd import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from fairseq_poolingformer.attention import Pooling, RelativePositionBias, TwoLevelAttention, Window, band_attention
from fairseq_poolingformer.attention.dropout import KeepMask
from fairseq_poolingformer.attention.pooling import pool_keys


def of_fairseq(module):
    """A module that needs fairseq."""
    return pytest.importorskip(f"fairseq_poolingformer.{module}")


MASK = KeepMask.draw(0.3, torch.device("cpu"))
QUERY, TABLE = (1, 2, 9, 4), (2, 5)
CASES = {  # class -> a function of tensors that calls it, and their shapes
    "_Attention": (
        lambda q, k, v, table: band_attention(q, k, v, window=Window(3), score_terms=[RelativePositionBias(table)]),
        [QUERY, QUERY, QUERY, TABLE],
    ),
    "_WeightedSum": (lambda x, weight: pool_keys(x, Pooling(3, 2), kind="ldconv", weight=weight)[0], [QUERY, (3, 8)]),
    "_ActivatedLinear": (
        lambda *x: of_fairseq("training.recompute")._ActivatedLinear.apply(*x, torch.tanh),
        [(4, 5), (3, 5), (3,)],
    ),
    "_SeededDropout": (lambda x: of_fairseq("training.recompute")._SeededDropout.apply(x, MASK), [(4, 5)]),
    "_TokenLosses": (
        lambda *x: of_fairseq("training.token_losses").linear_cross_entropy(*x, torch.arange(4))[0],
        [(4, 5), (6, 5), (6,)],
    ),
    "_InUnitInterval": (lambda x: of_fairseq("char_lm.adaptive_span")._InUnitInterval.apply(x), [(4, 5)]),
}
ELSEWHERE = {"Pools", "_OneProduct", "_Refusal"}  # test_pooling of Triton; test_joined, as it has second derivatives


def autograd_functions():
    paths = (Path(__file__).parents[2] / "fairseq_poolingformer").rglob("*.py")
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return {
        node.name
        for node in nodes
        if isinstance(node, ast.ClassDef) and "autograd" in "".join(map(ast.unparse, node.bases))
    }


def test_every_autograd_function_has_a_case():
    assert autograd_functions() == {*CASES, *ELSEWHERE}


def assert_first_order(function, inputs):
    """Derivatives of Σ f and Σ f³ with respect to each input alone, and to all of them."""
    for power in (None, 3):
        for wanted in (*([number] for number in range(len(inputs))), range(len(inputs))):

            def gradients(shift=0.0, wanted=wanted, power=power, **options):
                leaves = [x + shift * x * (n in wanted) for n, x in enumerate(inputs)]
                wanted = [leaves[n].requires_grad_() for n in wanted]
                out = function(*leaves) if power is None else function(*leaves).pow(power)
                return torch.autograd.grad(out.sum(), wanted, **options), wanted

            grads, leaves = gradients(create_graph=True)
            assert all(map(torch.equal, grads, gradients()[0]))
            total = sum(grad.sum() for grad in grads)
            if not total.requires_grad:  # of a linear function
                torch.testing.assert_close(gradients(0.5)[0], grads, atol=1e-5, rtol=0)
                continue
            with pytest.raises(RuntimeError, match=r"no second derivatives: .* outside of autograd"):
                torch.autograd.grad(total, leaves, allow_unused=True)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("recomputed", [False, True])
def test_functions(name, recomputed):
    function, shapes = CASES[name]
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in shapes]

    def f(*inputs):
        return checkpoint(function, *inputs, use_reentrant=False) if recomputed else function(*inputs)

    assert_first_order(f, inputs)


@pytest.mark.parametrize("levels", [{}, {"pooled_window": Window(6), "pooling": Pooling(2, 2)}])
def test_layers(levels):
    """Hessian-vector products, and forward derivatives by two backward passes."""
    layer = TwoLevelAttention(8, 2, window=Window(3), **levels).double()
    x = torch.randn(1, 12, 8, dtype=torch.float64)
    for derivative, argument in ((functional.hvp, lambda x: (x + layer(x)).pow(3).sum()), (functional.jvp, layer)):
        with pytest.raises(RuntimeError, match="no second derivatives: _Attention computes"):
            derivative(argument, x, x)


@pytest.mark.parametrize("window", [Window(3), Window.unlimited()])
def test_the_backends_that_the_message_names_have_them(window):
    """Hessian-vector products beside differences of gradients."""
    layer = TwoLevelAttention(8, 2, window=window, backend="sdpa" if window == Window.unlimited() else "reference")
    x, v = torch.randn(2, 1, 12, 8, dtype=torch.float64)
    layer = layer.double()

    def loss(x):
        return (x + layer(x)).pow(3).sum()

    with sdpa_kernel(SDPBackend.MATH):
        steps = [(x + sign * v).requires_grad_() for sign in (1e-5, -1e-5)]
        above, below = (torch.autograd.grad(loss(step), step)[0] for step in steps)
        product = functional.hvp(loss, x, v)[1]
    torch.testing.assert_close(product, (above - below) / 2e-5, atol=1e-6, rtol=1e-6)
