"""TwoLevelAttention against an independent layer in numpy, written from the papers' equations."""

import itertools

import numpy as np
import pytest
import torch

from fairseq_poolingformer.attention import POOL_TYPES, Pooling, RelativeProjections, TwoLevelAttention, Window
from tests.attention.numpy_layer import Layer

C, H, REAL = 8, 2, (17, 11)  # real tokens of the two rows


def weights_of(module):
    return {name: x.detach().numpy() for name, x in module.state_dict().items()}


def example():
    torch.manual_seed(1)
    x = torch.randn(2, max(REAL), C, dtype=torch.float64)
    global_mask = torch.zeros(2, max(REAL), dtype=torch.bool)
    global_mask[0, [0, 9]] = global_mask[1, 2] = True
    return x, global_mask, torch.arange(max(REAL)) >= torch.tensor(REAL)[:, None]


def assert_rows_equal(module, weights, score_terms=(), **choices):
    """Each row of a padded batch, cut to its real tokens, is what the numpy layer makes of these."""
    x, global_mask, padding = example()
    with torch.no_grad():
        actual = module(x, global_mask=global_mask, key_padding_mask=padding, score_terms=score_terms).numpy()
    for row, length in enumerate(REAL):
        is_global = frozenset(global_mask[row].nonzero().flatten().tolist())
        expected = Layer(weights, H, is_global=is_global, **choices)(x[row, :length].numpy())
        np.testing.assert_allclose(actual[row, :length], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", ["reference", "block"])
@pytest.mark.parametrize("kind", POOL_TYPES)
@pytest.mark.parametrize("alignment", ["grid", "query"])
def test_two_levels(backend, kind, alignment):
    sets_of_weights = (1, 2) if "ldconv" in kind else (1,)
    levels = [(False, False), (True, False), (False, True)]
    for (kernel_size, stride), (mix, share), sets in itertools.product([(5, 4), (2, 3)], levels, sets_of_weights):
        torch.manual_seed(0)
        module = TwoLevelAttention(
            C,
            H,
            window=Window(2),
            pooled_window=Window(6),
            pooling=Pooling(kernel_size, stride, alignment),
            pool_type=kind,
            ldconv_heads=sets,
            mix=mix,
            share_weights=share,
            backend=backend,
        ).double()
        for name, parameter in module.named_parameters():
            if "pool_weight" in name:  # far from the mean that it starts as
                torch.nn.init.normal_(parameter)
        choices = {"w1": 2, "w2": 6, "kernel_size": kernel_size, "stride": stride, "kind": kind}
        choices |= {"alignment": alignment, "mix": mix, "share": share}
        assert_rows_equal(module, weights_of(module), **choices)


@pytest.mark.parametrize("backend", ["reference", "block"])
@pytest.mark.parametrize("separate", [False, True])
def test_level_one(backend, separate):
    torch.manual_seed(0)
    module = TwoLevelAttention(C, H, window=Window(3), separate_global_projections=separate, backend=backend).double()
    assert_rows_equal(module, weights_of(module), w1=3)


@pytest.mark.parametrize("backend", ["reference", "block"])
def test_the_fusion(backend):
    """Relative positions up to k = 4 in a window of 3, and coarse ones that 5 distances share for global tokens."""
    torch.manual_seed(0)
    relative = RelativeProjections(C, H, reach=3, global_bucket=5).double().eval()
    module = TwoLevelAttention(
        C,
        H,
        window=Window(3),
        scale=relative.scale,
        pooled_window=Window(5),
        pooling=Pooling(3, 2),
        pool_type="max",
        backend=backend,
    ).double()
    fine, coarse = (torch.randn(rows, C, dtype=torch.float64) for rows in (8, 6))
    weights = weights_of(module)
    for name, array in weights_of(relative).items():
        weights[name.replace("k_proj", "relative_k_proj").replace("q_proj", "relative_q_proj")] = array
    choices = {"w1": 3, "w2": 5, "kernel_size": 3, "stride": 2, "kind": "max"}
    choices["relative"] = {"fine": fine.numpy(), "coarse": coarse.numpy(), "bucket": 5}
    assert_rows_equal(module, weights, score_terms=(relative(fine, coarse),), **choices)
