"""The layer that is written from the equations: equal to the fast one, and shown from the command line."""

import itertools
import subprocess
import sys

import pytest
import torch

from fairseq_poolingformer.attention import POOL_TYPES, Pooling, TwoLevelAttention, Window
from fairseq_poolingformer.attention.naive import NaiveAttention

C, H, REAL = 8, 2, (17, 11)  # real tokens of the two rows
GLOBAL = frozenset({0, 9}), frozenset({2})


def assert_rows_equal(module, naive):
    """Each row of a padded batch, cut to its real tokens, is the naive layer's, and so are all gradients."""
    torch.manual_seed(1)
    x, grad = torch.randn(2, 2, max(REAL), C, dtype=torch.float64)
    x.requires_grad_()
    global_mask = torch.tensor([[i in tokens for i in range(max(REAL))] for tokens in GLOBAL])
    padding = torch.arange(max(REAL)) >= torch.tensor(REAL)[:, None]
    module.load_state_dict(naive.state_dict())
    out = module(x, global_mask=global_mask, key_padding_mask=padding)
    out.backward(grad.masked_fill(padding[..., None], 0.0))
    expected_grad, x.grad = x.grad, None
    for row, length in enumerate(REAL):
        expected = naive(x[row, :length], GLOBAL[row])
        torch.testing.assert_close(out[row, :length], expected, atol=1e-12, rtol=0)
        expected.backward(grad[row, :length])
    torch.testing.assert_close(x.grad, expected_grad, atol=1e-11, rtol=0)
    for name, actual in module.named_parameters():
        expected = naive.get_parameter(name)
        wanted = torch.zeros_like(expected) if expected.grad is None else expected.grad  # where no query sees a pool
        torch.testing.assert_close(actual.grad, wanted, atol=1e-10, rtol=0, msg=lambda m, n=name: f"{n}: {m}")


def normal_pool_weights(naive):
    """Far from the mean that they start as."""
    for name, parameter in naive.named_parameters():
        if "pool_weight" in name:
            torch.nn.init.normal_(parameter)
    return naive.double()


@pytest.mark.parametrize("kind", POOL_TYPES)
@pytest.mark.parametrize("alignment", ["grid", "query"])
def test_two_levels(kind, alignment):
    levels = [(False, False), (True, False), (False, True)]
    for (kappa, xi), (mix, share), w2 in itertools.product([(5, 4), (2, 3)], levels, (1, 6)):
        torch.manual_seed(0)
        naive = normal_pool_weights(NaiveAttention(C, H, 2, w2, kappa, xi, kind, alignment, mix, share))
        geometry = {"window": Window(2), "pooled_window": Window(w2), "pooling": Pooling(kappa, xi, alignment)}
        options = {"pool_type": kind, "mix": mix, "share_weights": share}
        assert_rows_equal(TwoLevelAttention(C, H, **geometry, **options).double(), naive)


@pytest.mark.parametrize("kind", ["ldconv", "mean-ldconv", "mean"])
def test_one_softmax(kind):
    for w1, w2, size in [(2, 6, 4), (0, 40, 3), (16, 20, 4)]:
        naive = normal_pool_weights(NaiveAttention(C, H, w1, w2, size, size, kind, merge="softmax"))
        geometry = {"window": Window(w1), "pooled_window": Window(w2), "pooling": Pooling(size, size)}
        options = {"pool_type": kind, "pool_merge": "softmax"}
        assert_rows_equal(TwoLevelAttention(C, H, **geometry, **options).double(), naive)


def test_level_one():
    naive = NaiveAttention(C, H, w1=3).double()
    assert_rows_equal(TwoLevelAttention(C, H, window=Window(3)).double(), naive)


def test_by_hand():
    """Uniform weights: the output of token 2 is the mean of what it sees, in both levels."""
    layer = NaiveAttention(1, 1, w1=1, w2=3, kappa=3, xi=2, kind="mean")
    for name, parameter in layer.named_parameters():
        torch.nn.init.constant_(parameter, float(name in ("v_proj.weight", "pooled_v_proj.weight", "out_proj.weight")))
    y = [(0 + 1 + 5) / 3, (0 + 1 + 2 + 5) / 4, (1 + 2 + 3 + 5) / 4, (2 + 3 + 4 + 5) / 4, (3 + 4 + 5) / 3, 15 / 6]
    pools = [sum(y[0:3]) / 3, sum(y[2:5]) / 3, sum(y[4:6]) / 2]  # of which the last one would have a token more
    z = [pools[0:2], pools[0:2], pools, pools, pools, pools[1:3]]
    expected = [row + sum(pooled) / len(pooled) for row, pooled in zip(y, z, strict=True)]
    out = layer(torch.arange(6.0)[:, None], frozenset({5})).flatten()
    torch.testing.assert_close(out, torch.tensor(expected))


def test_it_runs_alone():
    command = [sys.executable, "-m", "fairseq_poolingformer.attention.naive"]
    tokens, pools, difference = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert tokens.endswith("sees the tokens 0 17 18 19 20 21 22 23")
    assert pools.endswith("8-12 12-16 16-20 20-24 24-28 28-32")
    assert float(difference.split()[-1]) < 1e-14
