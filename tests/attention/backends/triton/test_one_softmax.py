"""The kernel of one softmax against two calls of the reference in float64: on a GPU, else in Triton's interpreter."""

import random

import pytest
import torch

from fairseq_poolingformer.attention import Masks, Pooling, TwoLevelAttention, Window
from fairseq_poolingformer.attention.backends import reference
from fairseq_poolingformer.attention.backends.triton import backend
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.one_softmax import kernel_error, share_of_pools
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens
from tests.attention.backends.triton.test_backend import DEVICE, pass_in_the_interpreter, runs_kernels, use_small_blocks


@pytest.mark.full
def test_in_the_interpreter():
    pass_in_the_interpreter(__file__)


def compare(inputs, near, far, size, masks, scale=None):
    """Output and gradients of the kernel in float32, and of two calls merged in float64, of (Q, K, V, pooled K, V)."""
    results = []
    for dtype in (torch.float32, torch.float64):
        query, key, value, *pools = x = [x.to(DEVICE, dtype).detach().requires_grad_() for x in inputs]
        unseen = UnseenTokens.of(masks, near, Pooling(size, size), (len(query), query.size(2)), query.device)
        near_call = Call.of(query, key, value, window=near, masks=masks, scale=scale, return_lse=True)
        of_pools = {"pooling": unseen.pooling, "masks": unseen.masks, "score_terms": (unseen,), "scale": scale}
        far_call = Call.of(query, *pools, window=far, return_lse=True, **of_pools)
        if dtype == torch.float32:
            assert backend.why_not_both(near_call, far_call) is None
            out = backend.run_both(near_call, far_call)
        else:
            (y, lse), (pooled, pools_lse) = reference.run(near_call), reference.run(far_call)
            out = torch.lerp(y, pooled, share_of_pools(lse, pools_lse, masks))
        grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(out)
        results.append([out, *torch.autograd.grad(out, x, grad)])
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(
            actual.double(), expected, atol=1e-5 * max(1.0, float(expected.detach().abs().max())), rtol=0
        )


@runs_kernels
@pytest.mark.parametrize("small", [True, False])
def test_random_sweep(small, monkeypatch):
    """Windows with unequal sides, empty rows, far padding, lengths that no pool divides, several tiles a side."""
    if small:
        use_small_blocks(monkeypatch)
    rng = random.Random(small)
    for case in range(8):
        torch.manual_seed(case)
        batch, tokens, head_dim = rng.randint(1, 2), rng.choice([1, 9, 40, 70]), rng.choice([4, 16, 80])
        size = rng.choice([1, 2, 3, 4, 8])
        near = Window(rng.randint(0, 30), rng.choice([0, rng.randint(0, 30)]))
        far = rng.choice([Window(rng.randint(0, 150), rng.randint(0, 150)), Window.unlimited(), Window(90, 0)])
        place, padding, is_global = torch.arange(tokens, device=DEVICE)[None], None, None
        if rng.random() < 0.5:
            padding = place >= torch.tensor([[rng.randint(0, tokens)] for _ in range(batch)], device=DEVICE)
        if rng.random() < 0.5:
            is_global = place.expand(batch, -1) % rng.choice([7, 100]) == 0
        masks, num_pools = Masks(is_global, padding), Pooling(size, size).num_pools(tokens)
        inputs = [torch.randn(batch, 1, n, head_dim).double() for n in (tokens, tokens, tokens, num_pools, num_pools)]
        compare(inputs, near, far, size, masks, rng.choice([None, 0.5, -0.5]))


@runs_kernels
def test_whole_blocks_of_pools_without_any_token_in_the_window(monkeypatch):
    """On both sides, beside blocks that the window shows in part or as a whole, and one with a hidden token."""
    use_small_blocks(monkeypatch)
    inputs = [torch.randn(1, 1, n, 16).double() for n in (96, 96, 96, 48, 48)]
    place = torch.arange(96, device=DEVICE)[None]
    for masks in (Masks(), Masks(place == 50, None), Masks(None, place >= 91)):
        compare(inputs, Window(9), Window(70), 2, masks)


@runs_kernels
def test_production_tiles_of_pools():
    """Whole blocks of 32 queries and pools: at the ends of both bands, beside the window, and between these."""
    inputs = [torch.randn(1, 1, n, 16).double() for n in (300, 300, 300, 150, 150)]
    compare(inputs, Window(9, 12), Window(150, 130), 2, Masks())
    inputs = [torch.randn(1, 1, n, 80).double() for n in (100, 100, 100, 50, 50)]  # by tiles of 16
    compare(inputs, Window(5, 6), Window(50, 40), 2, Masks())


@runs_kernels
def test_the_self_check(monkeypatch):
    """It passes, with dropout too, and does not where pools draw another mask backward."""
    for masked in (True, False):
        problem = torch.float32, torch.device(DEVICE), 16, Pooling(8, 8), masked, masked
        assert kernel_error(*problem, dropout=True, tokens=100) < 1e-5
    monkeypatch.setattr(backend.launches, "DRAW_OF_POOLS", 5)
    assert kernel_error(*problem, dropout=True, tokens=100) > 1e-3


@runs_kernels
def test_a_layer_takes_it_and_weights_do_not(monkeypatch):
    layer = TwoLevelAttention(
        8, 2, window=Window(3), pooled_window=Window(20), pooling=Pooling(2, 2), pool_merge="softmax"
    ).to(DEVICE)
    x = torch.randn(2, 40, 8, device=DEVICE)
    masks = Masks(torch.arange(40, device=DEVICE).expand(2, -1) == 5)
    expected = layer.double()(x.double(), masks=masks)
    runs, run_both = [], backend.run_both
    monkeypatch.setattr(backend, "run_both", lambda *calls: runs.append(calls) or run_both(*calls))
    torch.testing.assert_close(layer.float()(x, masks=masks), expected.float(), atol=1e-5, rtol=0)
    assert len(runs) == 1
    layer.weights(x, masks=masks)
    assert len(runs) == 1
