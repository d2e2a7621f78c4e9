"""Dropout masks drawn from a seed."""

import pytest
import torch

from fairseq_poolingformer.attention import Masks, Pooling, TwoLevelAttention, Window, band_attention
from fairseq_poolingformer.attention.dropout import KeepMask
from tests.attention.calls import tensors


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1,), (3, 5), (7, 1001)])
def test_the_same_again_and_another_elsewhere(dtype, shape):
    x, mask = torch.zeros(shape, dtype=dtype), KeepMask(0.5, torch.tensor(3))
    drawn = mask.like(x)
    assert (drawn.dtype, drawn.shape) == (dtype, x.shape)
    assert set(drawn.flatten().tolist()) <= {0.0, 1.0}
    assert torch.equal(drawn, mask.like(x))
    if x.numel() > 1000:
        assert not torch.equal(drawn, mask.like(x, (1,)))
        assert not torch.equal(drawn, KeepMask(0.5, torch.tensor(4)).like(x))


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.999])
def test_share_and_independence_of_what_is_kept(probability):
    mask = KeepMask(probability, torch.tensor(0))
    drawn = mask.like(torch.zeros(1000, 1000))
    assert mask.keep == pytest.approx(1 - probability, abs=2**-16)
    spread = (mask.keep * (1 - mask.keep) / drawn.numel()) ** 0.5
    assert drawn.mean().item() == pytest.approx(mask.keep, abs=5 * spread + 1e-12)
    neighbours = (drawn[:, 1:] * drawn[:, :-1]).mean().item()  # four draws come from one 64-bit number
    assert neighbours == pytest.approx(mask.keep**2, abs=10 * spread + 1e-12)


def test_seeds_come_from_torchs_generator():
    device = torch.device("cpu")
    torch.manual_seed(5)
    mask, next_mask = KeepMask.draw(0.1, device), KeepMask.draw(0.1, device)
    torch.manual_seed(5)
    assert KeepMask.draw(0.1, device) == mask != next_mask
    torch.manual_seed(5)
    assert mask.seed == torch.randint(2**62, ())
    assert KeepMask.draw(0.0, device).seed is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
@pytest.mark.parametrize("levels", [{}, {"pooled_window": Window(64), "pooling": Pooling(5, 4)}])
def test_a_replayed_graph_draws_another_mask(levels):
    """In the forward and in the backward pass."""
    layer = TwoLevelAttention(64, 2, window=Window(16), dropout=0.3, **levels).cuda()
    x = torch.randn(1, 300, 64, device="cuda", requires_grad=True)
    masks = Masks(torch.arange(300, device="cuda")[None] < 1)

    def step():
        out = layer(x, masks=masks)
        return out, *torch.autograd.grad(out.sum(), [x, layer.v_proj.weight])

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):  # kernels are compiled and checked before a capture
        for _ in range(3):
            step()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    replayed = []
    for _ in range(2):
        graph.replay()
        replayed.append([result.clone() for result in results])
    for a, b in zip(*replayed, strict=True):
        assert not torch.equal(a, b)


GLOBAL = torch.arange(40)[None].expand(2, -1) % torch.tensor([[19], [50]]) == 3
PATTERNS = [
    {"window": Window(4)},
    {"window": Window(3, 0, (1, 2)), "global_mask": GLOBAL},
    {"window": Window.unlimited()},
    {"window": Window(9), "pooling": Pooling(5, 4), "query_offset": 3},
    {"window": Window(9), "pooling": Pooling(3, 2, "query")},
]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("arguments", PATTERNS)
def test_the_backward_pass_of_blocks_draws_the_same_mask(arguments):
    """One-hot values show which weights are kept; dense attention of these has the same output and gradients."""
    query, key, value = inputs = tensors(2, 2, 40, 40, 40)
    one_hot = torch.eye(40, dtype=torch.float64).expand(2, 2, -1, -1)

    def run(value):
        torch.manual_seed(5)
        return band_attention(query, key, value, dropout_p=0.4, backend="block", **arguments)

    weights = band_attention(query, key, one_hot, backend="reference", **arguments)
    survives = run(one_hot).detach() != 0.0
    assert survives[weights > 0].double().mean() == pytest.approx(0.6, abs=0.06)
    out, expected = run(value), (weights * survives / KeepMask(0.4).keep) @ value
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    gradients = (torch.autograd.grad(x, inputs, grad) for x in (out, expected))
    for actual, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, wanted, atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", ["block", "reference"])
def test_global_tokens_draw_independently(backend):
    """As queries and as keys, from one another and from row to row and head to head: one-hot values show the mask."""
    torch.manual_seed(0)
    size = 512
    one_hot = torch.eye(size, dtype=torch.float64).expand(2, 2, -1, -1)
    tokens = torch.tensor([3, 40, 41, 500])
    global_mask = torch.zeros(2, size, dtype=torch.bool)
    global_mask[:, tokens] = True
    x = torch.zeros_like(one_hot)
    arguments = {"window": Window(2), "global_mask": global_mask, "dropout_p": 0.5}
    survives = band_attention(x, x, one_hot, backend=backend, **arguments) != 0.0
    others = torch.ones(size, dtype=torch.bool)
    others[tokens] = False
    for of_tokens in (survives[:, :, tokens][..., others], survives[..., tokens].transpose(2, 3)[..., others]):
        signs = of_tokens.flatten(0, 2).double() * 2 - 1
        together = (signs @ signs.T / signs.size(1)).fill_diagonal_(0.0)  # of independent draws N(0, 1/508)
        assert together.abs().max() < 5 / signs.size(1) ** 0.5
