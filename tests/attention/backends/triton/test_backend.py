"""The Triton backend against the reference in float64: on a GPU where there is one, else in Triton's interpreter.

The interpreter is chosen before Triton is imported and for a whole process, so one test runs this file in another.
"""

import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from fairseq_poolingformer.attention import (
    BACKENDS,
    DisentangledPosition,
    Masks,
    Pooling,
    RelativePositionBias,
    ScoreTerm,
    Window,
    band_attention,
)
from fairseq_poolingformer.attention.backends import self_check
from fairseq_poolingformer.attention.backends.triton import arguments
from fairseq_poolingformer.attention.call import Call, term_tensors
from fairseq_poolingformer.attention.pooling import pool_pair
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens
from fairseq_poolingformer.cli import doctor
from tests.attention.calls import outputs_and_gradients, random_arguments, right_padding, tensors
from tests.attention.score_terms.test_disentangled import tables
from tests.attention.score_terms.test_relative_bias import gradient_at_a_mask_of_0

GAPS = torch.arange(43)[None] % 9 >= 4
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
runs_kernels = pytest.mark.kernels


def pass_in_the_interpreter(file, *options):
    """Run the tests of a file in a process with Triton's interpreter."""
    pytest.importorskip("triton")
    if INTERPRETED:
        pytest.skip("this is it")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options, file]
    run = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.full
@pytest.mark.parametrize("tests", ["sweep", "not sweep and not without"])
def test_in_the_interpreter(tests):
    pass_in_the_interpreter(__file__, "-k", tests)


def test_without_triton():
    check = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch; from fairseq_poolingformer.attention import BACKENDS, Window, band_attention\n"
        "assert BACKENDS['triton'].triton is None\n"
        "band_attention(*torch.zeros(3, 1, 1, 4, 4), window=Window(1))\n"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


@pytest.fixture(params=["whole", "small"])
def blocks(request, monkeypatch):
    """The blocks of a GPU, and small ones with ranges in splits, so that small inputs cross many edges."""
    if request.param == "small":
        use_small_blocks(monkeypatch)


def use_small_blocks(monkeypatch):
    monkeypatch.setattr(arguments, "STEPS_PER_SPLIT", 1)
    monkeypatch.setattr(arguments, "tile_shape", lambda *_: arguments.TileShape(16, 16, 4, 1))


def on_device(x, dtype):
    return x.detach().to(DEVICE, dtype).requires_grad_(x.requires_grad)


def terms_on_device(terms, dtype):
    """The terms over leaves of their own, and those of them that gradients are wanted for."""
    moved = [replace(term, **{n: on_device(x, dtype) for n, x in term_tensors(term).items()}) for term in terms]
    return moved, [x for term in moved for x in term_tensors(term).values() if x.requires_grad]


def compare(inputs, terms=(), **arguments):
    """Outputs and gradients of the kernels in float32, and of the reference in float64 on the same numbers."""
    arguments = {name: x.to(DEVICE) if isinstance(x, Tensor) else x for name, x in arguments.items()}
    results = []
    for backend, dtype in (("triton", torch.float32), ("reference", torch.float64)):
        moved, wanted = terms_on_device(terms, dtype)
        leaves = [on_device(x, dtype) for x in inputs]
        results.append(outputs_and_gradients(leaves, wanted, score_terms=moved, backend=backend, **arguments))
    for number, (actual, expected) in enumerate(zip(*results, strict=True)):
        scale = max(1.0, float(expected.detach().nan_to_num(neginf=0.0).abs().max()))
        torch.testing.assert_close(
            actual.double(), expected, atol=1e-5 * scale, rtol=0, msg=lambda m, n=number: f"result {n}: {m}"
        )


@runs_kernels
@pytest.mark.parametrize("offset", [0, 20])
@pytest.mark.parametrize("num_globals", [0, 2])
def test_one_query_and_keys_that_it_does_not_see(offset, num_globals):
    """With a dilation some keys are in no query's residue class; their gradients are zero, but for global queries."""
    global_mask = torch.arange(41)[None] % 20 < num_globals
    compare(tensors(1, 2, 1, 41, 4), window=Window(3, 3, 4), global_mask=global_mask, query_offset=offset)


@runs_kernels
def test_blocks_inside_a_window(monkeypatch):
    """Among windows of several blocks, with hidden keys in some, and a scale below zero."""
    use_small_blocks(monkeypatch)
    place = torch.arange(80)[None]
    masks = {"global_mask": place == 50, "key_padding_mask": place > 72}
    compare(tensors(1, 1, 80, 80, 4), window=Window(25, 20), **masks)
    compare(tensors(1, 1, 80, 80, 4), window=Window(25, 20), scale=-0.5)


@runs_kernels
@pytest.mark.skipif(not INTERPRETED, reason="compiled kernels do not count their tiles")
def test_global_tokens_and_padding_mask_few_tiles(tiles, monkeypatch):
    """Most tiles that need no mask in a window, or across sources, stay so; backward as forward."""

    def unmasked(window, **masks):
        tiles.clear()
        inputs = tensors(1, 1, 16 if window is None else 256, 256, 4, torch.float32)
        band_attention(*inputs, window=window or Window.unlimited(), backend="triton", **masks).sum().backward()
        return tiles["forward", "unmasked"] + tiles["backward", "unmasked"]

    monkeypatch.setattr(arguments, "tile_shape", lambda *_: arguments.TileShape(16, 16, 4, 1))
    place = torch.arange(256)[None]
    window, across = unmasked(Window(64)), unmasked(None)
    assert window >= 2 * (120 + 120 + 90), "edges, too, but for backward_keys"
    assert unmasked(Window(64), key_padding_mask=place > 252) >= 0.93 * window
    assert unmasked(Window(64), global_mask=place % 25 == 7) >= window
    assert unmasked(None, key_padding_mask=place > 252) >= 0.9 * across
    assert 0 < unmasked(Window(64), key_padding_mask=place == 175) < 0.7 * window, "hidden keys in between"


@runs_kernels
@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("window", [Window(9, 5), Window(3, 4, (1, 3)), Window.unlimited(), Window(0)])
def test_global_tokens_inside_and_outside_of_windows_count_once(window):
    """Whatever is padding: nothing, keys at both ends of a row, some between and global ones, or a whole row."""
    place = torch.arange(60)
    global_mask = (place % 20 == 7) | (place < 2)
    padding = torch.stack([(place < 18) | (place > 51), place % 10 == 7, place >= 0])
    inputs = tensors(3, 2, 60, 60, 4)
    compare(inputs, window=window, global_mask=global_mask.expand(3, -1), key_padding_mask=padding)
    compare([x[1:2] for x in inputs], window=window, key_padding_mask=padding[1:2])
    compare([x[2:] for x in inputs], window=window, global_mask=global_mask[None])


@runs_kernels
@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("pooling", [None, Pooling(3, 2), Pooling(3, 2, "query")])
def test_unlimited_windows(pooling):
    keys = 40 if pooling is None else pooling.num_pools(40)
    for causal in (True, False):
        compare(tensors(1, 2, 20, keys, 4), window=Window.unlimited(causal=causal), pooling=pooling, query_offset=20)


@runs_kernels
@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(
    ("window", "pooling"),
    [
        (Window(9, 5), None),
        (Window(2, 1, (1, 3)), None),
        (Window(20), Pooling(5, 4)),
        (Window(9), Pooling(3, 2, "query")),
    ],
)
def test_score_terms_and_their_gradients(window, pooling):
    keys = 43 if pooling is None else pooling.num_pools(43)
    generator = torch.Generator().manual_seed(0)
    tables = [torch.randn(rows, columns, generator=generator) for rows, columns in ((2, 9), (1, 3), (2, 5), (2, 1))]
    terms = [RelativePositionBias(x.requires_grad_(number != 2)) for number, x in enumerate(tables)]
    global_mask = None if pooling else torch.arange(keys)[None] % 39 == 2
    compare(tensors(1, 2, 43, keys, 4), terms, window=window, pooling=pooling, global_mask=global_mask, query_offset=3)


@runs_kernels
@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("counted", ["all", "some"])
@pytest.mark.parametrize(
    ("near", "window", "size", "arguments"),
    [
        (Window(5), Window(20), 4, {}),
        (Window(7, 0), Window(30, 0), 3, {"query_offset": 6}),
        (Window(2, 9), Window.unlimited(), 5, {}),
        (Window(0), Window(9), 1, {"key_padding_mask": torch.arange(43)[None] % 9 == 4}),
    ],
)
def test_pools_beside_tokens(near, window, size, arguments, counted):
    """Pools whose tokens all count, and some with padding or global tokens, at the window's edge and far from it."""
    tokens, pooling = 43 * size - size // 2, Pooling(size, size)
    mask = torch.arange(tokens)[None] >= 0
    if counted != "all":
        mask = torch.rand(1, tokens, generator=torch.Generator().manual_seed(0)) < 0.5
    terms = [UnseenTokens(near, pooling, mask.to(DEVICE))]
    if counted == "some":
        table = torch.randn(2, 31, generator=torch.Generator().manual_seed(1))
        terms.append(RelativePositionBias(table.requires_grad_()))
    compare(tensors(1, 2, 50, 43, 4), terms, window=window, pooling=pooling, return_lse=True, **arguments)


@runs_kernels
@pytest.mark.usefixtures("blocks")
def test_the_gradient_at_a_mask_of_exactly_0():
    expected = gradient_at_a_mask_of_0("reference", torch.float64)
    actual = gradient_at_a_mask_of_0("triton", torch.float32, DEVICE).cpu()
    torch.testing.assert_close(actual, expected, atol=0, rtol=1e-4)


@runs_kernels
@pytest.mark.usefixtures("blocks")
def test_logarithms_and_their_gradients():
    """One query, too, whose keys several programs split."""
    table = torch.randn(2, 9, generator=torch.Generator().manual_seed(0)).requires_grad_()
    call = {"window": Window(3, 0), "global_mask": torch.arange(43)[None] % 20 == 2, "key_padding_mask": GAPS}
    for queries in (43, 1):
        compare(tensors(1, 2, queries, 43, 4), [RelativePositionBias(table)], return_lse=True, **call)


@runs_kernels
def test_random_sweep(monkeypatch):
    """Random calls over everything the operator takes, at odd sizes."""
    rng = random.Random(0)
    for case in range(24):
        if case == 10:
            use_small_blocks(monkeypatch)
        torch.manual_seed(case)
        batch, heads, head_dim = rng.randint(1, 2), rng.choice([1, 2]), rng.choice([1, 3, 8, 17, 80])
        queries, keys = rng.randint(1, 60), rng.randint(1, 60)
        arguments = random_arguments(rng, batch, heads, keys)
        terms = []
        if rng.random() < 0.3:
            table = torch.randn(rng.choice([1, heads]), 2 * rng.choice([0, 2, 30]) + 1, requires_grad=True)
            terms = [RelativePositionBias(table)]
        compare(tensors(batch, heads, queries, keys, head_dim, seed=case), terms, **arguments)


@runs_kernels
@pytest.mark.parametrize("head_dim", [16, 100, 256])
def test_head_dimensions(head_dim):
    compare(tensors(1, 1, 40, 40, head_dim), window=Window(9), global_mask=torch.arange(40)[None] < 1)


@runs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_error_is_at_most_twice_that_of_plain_pytorch(dtype):
    if dtype == torch.bfloat16 and INTERPRETED:
        pytest.skip("Triton's interpreter does not multiply bfloat16")
    inputs = [on_device(x, dtype) for x in tensors(1, 2, 257, 257, 64)]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    arguments = {"window": Window(32), "global_mask": torch.arange(257, device=DEVICE)[None] < 1}
    golden = outputs_and_gradients(exact, backend="reference", **arguments)
    plain = outputs_and_gradients(inputs, backend="reference", **arguments)
    actual = outputs_and_gradients(inputs, backend="triton", **arguments)
    for a, p, g in zip(actual, plain, golden, strict=True):
        assert a.dtype == dtype
        assert (a - g).abs().max() <= 2 * (p - g).abs().max() + 1e-6


@runs_kernels
def test_memory_around_the_tensors_is_never_read():
    def surrounded(x):
        big = torch.full((x.size(0), x.size(1), x.size(2) + 64, x.size(3) + 8), torch.nan, device=DEVICE)
        big[:, :, 32:-32, :-8] = x.detach()
        return big[:, :, 32:-32, :-8].requires_grad_()

    inputs = [on_device(x, torch.float32) for x in tensors(1, 2, 70, 70, 8)]
    clean = outputs_and_gradients(inputs, window=Window(9), backend="triton")
    dirty = outputs_and_gradients([surrounded(x) for x in inputs], window=Window(9), backend="triton")
    for a, b in zip(clean, dirty, strict=True):  # other strides may be compiled to another order of sums
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


@runs_kernels
@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(("num_globals", "size"), [(0, 43), (2, 5)])
def test_padded_keys_and_values_are_never_read(num_globals, size):
    """They may be NaN: of a global token, and inside a window where all other keys are seen."""
    place = torch.arange(43, device=DEVICE)[None]
    masks = {"key_padding_mask": (place == 3) | (place > 38), "global_mask": place % 39 < num_globals}
    inputs = [on_device(x, torch.float32) for x in tensors(1, 2, 43, 43, 8)]
    dirty = [inputs[0], *(x.detach().clone().requires_grad_() for x in inputs[1:])]
    for x in dirty[1:]:
        x.data.transpose(1, 2)[masks["key_padding_mask"]] = torch.nan
    results = [outputs_and_gradients(x, window=Window(size), backend="triton", **masks) for x in (inputs, dirty)]
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


@runs_kernels
@pytest.mark.parametrize("permutation", [(0, 1, 2, 3), (2, 0, 1, 3), (3, 1, 0, 2)])
def test_any_memory_layout(permutation):
    inverse = [permutation.index(n) for n in range(4)]
    inputs = [x.detach().permute(permutation).contiguous().permute(inverse) for x in tensors(2, 3, 50, 50, 4)]
    inputs[2] = inputs[2].contiguous()  # values unlike the keys
    padding = right_padding([50, 30], 50).t().contiguous().t()
    compare([x.requires_grad_() for x in inputs], window=Window(6, 6, (1, 2, 2)), key_padding_mask=padding)


def as_view(x):
    """A copy in every second element of a larger tensor, dimensions in the opposite order."""
    larger = x.new_full([2 * n + 1 for n in reversed(x.shape)], 0 if x.dtype == torch.bool else torch.nan)
    view = larger.permute(*reversed(range(x.dim())))[(slice(1, None, 2),) * x.dim()]
    return view.copy_(x)


def one_softmax(query, key, value, pool_key, pool_value, masks, counted):
    unseen = UnseenTokens(Window(5), Pooling(3, 3), counted)
    tokens = Call.of(query, key, value, window=Window(5), masks=masks)
    pools = {"pooling": unseen.pooling, "masks": unseen.masks, "score_terms": (unseen,)}
    return BACKENDS["triton"].run_both(tokens, Call.of(query, pool_key, pool_value, window=Window(30), **pools))


def windows(query, key, value, table, masks, counted):
    arguments = {"window": Window(5, 3), "masks": masks, "backend": "triton", "return_lse": True}
    out, lse = band_attention(query, key, value, score_terms=[RelativePositionBias(table)], **arguments)
    return out + lse.where(lse.isfinite(), 0.0)[..., None]


def positions(query, key, value, *tables_and_masks):
    *tables, masks, _ = tables_and_masks
    terms = [DisentangledPosition(*tables, global_bucket=8)]
    return band_attention(query, key, value, window=Window(2), score_terms=terms, masks=masks, backend="triton")


def pooled(key, value, weight, bias, masks, counted):
    return pool_pair(key, value, Pooling(4, 3), "mean-ldconv", masks, (weight, bias))


TOKENS, POOLS, COARSE = (2, 2, 40, 16), (2, 2, 14, 16), (2, 10, 16)
OF_KERNELS = {
    windows: [TOKENS, TOKENS, TOKENS, (2, 7)],
    positions: [TOKENS, TOKENS, TOKENS, (2, 4, 16), (2, 4, 16), COARSE, COARSE],
    one_softmax: [TOKENS, TOKENS, TOKENS, POOLS, POOLS],
    pooled: [TOKENS, TOKENS, (2, 8, 32), (2, 8)],
}


@runs_kernels
@pytest.mark.parametrize("function", OF_KERNELS)
def test_every_tensor_of_a_kernel_may_be_a_view(function):
    """Inputs, masks, tables, weights and gradients: the results of contiguous ones."""
    generator, place = torch.Generator().manual_seed(0), torch.arange(40)
    numbers = [torch.randn(shape, generator=generator) for shape in OF_KERNELS[function]]
    bools = place % 17 == torch.tensor([[3], [5]]), right_padding([40, 29], 40)
    results = []
    for lay in (torch.Tensor.contiguous, as_view):
        leaves = [lay(x.to(DEVICE)).requires_grad_() for x in numbers]
        global_mask, padding = (lay(x.to(DEVICE)) for x in bools)
        out = function(*leaves, Masks(global_mask, padding), lay((~bools[0] & ~bools[1]).to(DEVICE)))
        grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
        results.append((out, *torch.autograd.grad(out, leaves, lay(grad))))
    for number, (expected, actual) in enumerate(zip(*results, strict=True)):
        assert expected.abs().max() > 0.1
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0, msg=lambda m, n=number: f"result {n}: {m}")


@runs_kernels
def test_an_empty_batch():
    inputs = [on_device(x, torch.float32) for x in tensors(0, 2, 20, 20, 4)]
    for x in outputs_and_gradients(inputs, window=Window(3), backend="triton"):
        assert x.shape == (0, 2, 20, 4)


@runs_kernels
def test_float16_scores_do_not_overflow():
    """q·k of 80,000 is beyond float16, its scaled 10,000 is not."""
    x = [torch.full((1, 1, 20, 64), 35.0, dtype=torch.float16, device=DEVICE, requires_grad=True) for _ in range(3)]
    for y in outputs_and_gradients(x, window=Window(3), backend="triton"):
        assert torch.isfinite(y).all()


@runs_kernels
def test_a_gradient_that_is_one_number_everywhere():
    """The gradient of a sum has strides of zero."""
    inputs = [on_device(x, torch.float32) for x in tensors(1, 2, 30, 30, 4)]
    ones = torch.autograd.grad(band_attention(*inputs, window=Window(3), backend="triton").sum(), inputs)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    expected = torch.autograd.grad(band_attention(*exact, window=Window(3), backend="reference").sum(), exact)
    for a, e in zip(ones, expected, strict=True):
        torch.testing.assert_close(a.double(), e, atol=1e-5, rtol=0)


@dataclass(frozen=True)
class Dropped:
    """A call with dropout of 48 keys; values that are one-hot show its weights."""

    arguments: dict
    p: float = 0.3

    def run(self, query, key, value):
        torch.manual_seed(7)
        return band_attention(query, key, value, dropout_p=self.p, backend="triton", **self.arguments)

    def weights(self, query, key):
        """(B, H, T, 48) with dropout."""
        value = torch.eye(48, device=DEVICE).expand(*key.shape[:2], 48, 48)
        return self.run(query, key, value)


POSITIONS = DisentangledPosition(**{n: x.detach() / 8 for n, x in tables(2, 4, 3, 48).items()}, global_bucket=8)
COUNTS = UnseenTokens(Window(2), Pooling(3, 3), (torch.arange(144)[None] % 5 > 0).to(DEVICE))
DROPPED = [
    Dropped({"window": Window(9, 30), "global_mask": torch.arange(48)[None] % 20 == 0}),
    Dropped({"window": Window(9, 4, (1, 2)), "global_mask": torch.arange(48)[None] == 3}),
    Dropped({"window": Window.unlimited()}),
    Dropped({"window": Window(90), "pooling": Pooling(3, 2)}),
    Dropped({"window": Window(4), "global_mask": torch.arange(48)[None] == 3, "score_terms": [POSITIONS]}),
    Dropped({"window": Window(90), "pooling": Pooling(3, 3), "score_terms": [COUNTS]}),
]


@runs_kernels
@pytest.mark.parametrize("case", DROPPED)
def test_dropout_is_the_same_in_all_passes(case, monkeypatch):
    """Its mask, read off one-hot values, and autograd through the dense weights give the gradients."""
    use_small_blocks(monkeypatch)
    arguments = {k: v.to(DEVICE) if isinstance(v, Tensor) else v for k, v in case.arguments.items()}
    terms = arguments.pop("score_terms", [])
    case = Dropped({**arguments, "score_terms": terms_on_device(terms, torch.float32)[0]})
    arguments["score_terms"] = terms_on_device(terms, torch.float64)[0]
    query, key, value = (on_device(x, torch.float32) for x in tensors(1, 2, 40, 48, 48))
    mask = case.weights(query, key).detach().double() != 0.0
    exact = [x.detach().double().requires_grad_() for x in (query, key, value)]
    one_hot = torch.eye(48, dtype=torch.float64, device=DEVICE).expand(1, 2, 48, 48)
    weights = band_attention(*exact[:2], one_hot, backend="reference", **arguments)
    out = (weights * mask / (1 - round(case.p * 2**16) / 2**16)) @ exact[2]
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    expected = out, *torch.autograd.grad(out, exact, grad.double())
    out = case.run(query, key, value)
    for a, e in zip((out, *torch.autograd.grad(out, (query, key, value), grad)), expected, strict=True):
        torch.testing.assert_close(a.double(), e, atol=2e-5, rtol=0)


@runs_kernels
def test_dropout_does_not_depend_on_blocks(monkeypatch):
    query, key, _ = (on_device(x, torch.float32) for x in tensors(2, 2, 60, 48, 48))
    before = DROPPED[2].weights(query, key) != 0.0
    use_small_blocks(monkeypatch)
    assert torch.equal(DROPPED[2].weights(query, key) != 0.0, before)


@runs_kernels
def test_dropout_drops_its_share_independently():
    query, key, _ = (on_device(x, torch.float32) for x in tensors(4, 8, 64, 48, 48))
    kept = (DROPPED[2].weights(query, key) != 0.0).double()
    deviation = (0.3 * 0.7) ** 0.5

    def assert_no_more_than_chance(x, mean, spread):
        assert (x.mean() - mean).abs() < 5 * spread / x.numel() ** 0.5

    assert_no_more_than_chance(kept, 0.7, deviation)
    centred = kept - 0.7
    for dim in range(4):  # batch, head, query, key: neighbours know nothing of each other
        for distance in (1, 2, 4, 8) if dim > 1 else (1,):
            product = centred.narrow(dim, 0, kept.size(dim) - distance) * centred.narrow(
                dim, distance, kept.size(dim) - distance
            )
            assert_no_more_than_chance(product, 0.0, deviation**2)


@dataclass(frozen=True)
class Unknown(ScoreTerm):
    """A score term without a kernel."""

    def scores(self, pairs):
        return pairs.distance(torch.device(DEVICE)).double()


@pytest.mark.skipif(DEVICE == "cuda", reason="where there is no GPU")
def test_cpu_and_missing_triton_are_named(monkeypatch):
    x = torch.zeros(1, 1, 4, 4)
    if not INTERPRETED and BACKENDS["triton"].triton is not None:
        with pytest.raises(ValueError, match="'triton' cannot run this call: it needs a CUDA device, query is on cpu"):
            band_attention(x, x, x, window=Window(1), backend="triton")
    monkeypatch.setattr(BACKENDS["triton"], "triton", None)
    with pytest.raises(ValueError, match="Triton is not installed"):
        band_attention(x, x, x, window=Window(1), backend="triton")


@runs_kernels
@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"dtype": torch.float64}, "query is float64"),
        ({"head_dim": 257}, "head dimensions up to 256, query has 257"),
        ({"score_terms": [Unknown()]}, "no kernel for Unknown"),
    ],
)
def test_what_it_cannot_run_is_named(change, word):
    x = torch.zeros(1, 1, 4, change.get("head_dim", 4), dtype=change.get("dtype", torch.float32), device=DEVICE)
    with pytest.raises(ValueError, match=word):
        band_attention(x, x, x, window=Window(1), score_terms=change.get("score_terms", ()), backend="triton")


@runs_kernels
@pytest.mark.parametrize("term", [RelativePositionBias, DisentangledPosition])
def test_a_table_gradient_is_refused_where_determinism_is_asked_for(term):
    x = torch.zeros(1, 1, 4, 4, device=DEVICE)
    shape = (1, 3) if term is RelativePositionBias else (1, 2, 4)
    table = torch.zeros(shape, device=DEVICE, requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(ValueError, match="no fixed order"):
            band_attention(x, x, x, window=Window(1), score_terms=[term(table)], backend="triton")
    finally:
        torch.use_deterministic_algorithms(False)


@runs_kernels
@pytest.mark.parametrize("changed", ["key_padding_mask", "global_mask"])
def test_masks_changed_before_the_backward_pass_change_no_gradient(changed):
    inputs = [on_device(x, torch.float32) for x in tensors(2, 2, 20, 20, 4)]
    masks = {"key_padding_mask": right_padding([20, 13], 20), "global_mask": torch.arange(20).expand(2, 20) % 13 == 1}
    masks = {name: mask.clone().to(DEVICE) for name, mask in masks.items()}
    out = band_attention(*inputs, window=Window(3), backend="triton", **masks)
    expected = torch.autograd.grad(out.sum(), inputs, retain_graph=True)
    masks[changed].logical_not_()
    for actual, wanted in zip(torch.autograd.grad(out.sum(), inputs), expected, strict=True):
        torch.testing.assert_close(actual, wanted)


@runs_kernels
@pytest.mark.parametrize(
    "settings",
    [
        {"window": Window(9), "global_mask": torch.arange(40)[None] < 1},
        {"window": Window(9), "pooling": Pooling(3, 2), "dropout_p": 0.1},
        {"window": Window(9, 0), "score_terms": [RelativePositionBias(torch.zeros(2, 9, device=DEVICE))]},
    ],
)
def test_the_self_check_passes_and_finds_what_is_broken(settings, monkeypatch):
    monkeypatch.setattr(self_check, "LENGTH", 40)
    monkeypatch.setattr(self_check, "REACHES", (5,))
    settings = {name: x.to(DEVICE) if isinstance(x, Tensor) else x for name, x in settings.items()}
    keys = settings["pooling"].num_pools(40) if "pooling" in settings else 40
    inputs = [on_device(x, torch.float32) for x in tensors(1, 2, 40, keys, 16)]
    call, run = Call.of(*inputs, **settings), BACKENDS["triton"].run
    assert self_check.difference(run, call) is None
    true, backward = arguments.limits, BACKENDS["triton"].launches.backward_keys
    with monkeypatch.context() as patch:
        patch.setattr(arguments, "limits", lambda *band: (true(*band)[0] + 1, true(*band)[1]))
        BACKENDS["triton"].launches.launches_of.cache_clear()
        assert "the output differs" in self_check.difference(run, call)
    BACKENDS["triton"].launches.launches_of.cache_clear()
    monkeypatch.setattr(BACKENDS["triton"].launches, "backward_keys", lambda *x: [1.1 * y for y in backward(*x)])
    assert "the gradient of key differs" in self_check.difference(run, call)


@pytest.fixture
def tiles(monkeypatch):
    """Counts of tiles by kernel, forward or backward, and whether they are masked."""
    counts = Counter()

    def counting(name, function):
        def wrapper(*arguments):
            counts[name] += 1
            return function(*arguments)

        return wrapper

    for kernels in (BACKENDS["triton"].launches.forward_kernels, BACKENDS["triton"].launches.backward_kernels):
        module = kernels.__name__.rpartition(".")[2]
        for name, function in (("unmasked", "load_block"), ("masked", "load_rows")):
            monkeypatch.setattr(kernels, function, counting((module, name), getattr(kernels, function)))
    return counts


@runs_kernels
@pytest.mark.skipif(not INTERPRETED, reason="compiled kernels do not count their tiles")
@pytest.mark.parametrize("kind", [*doctor.calls("cpu", torch.float16), 80, 160])
def test_the_self_check_enters_the_loops_with_masks_and_without(kind, tiles, monkeypatch):
    """In all of doctor's kinds; vectors of more than 64 numbers have no loop without masks backward, of 128 none."""
    monkeypatch.setattr(self_check, "LENGTH", 520 if "two" in str(kind) else 200)  # with 130 pools
    monkeypatch.setattr(self_check, "REACHES", self_check.REACHES[1:])
    if isinstance(kind, int):
        call = Call.of(*tensors(1, 1, 64, 64, kind, torch.float16), window=Window(8))
    else:
        call = doctor.calls("cpu", torch.float16)[kind]
    assert self_check.difference(BACKENDS["triton"].run, call) is None
    for module in ("forward", "backward"):
        assert tiles[module, "masked"]
        assert (tiles[module, "unmasked"] == 0) == (kind == 160 or (kind == 80 and module == "backward")), module


@runs_kernels
def test_production_tiles_inside_a_window():
    """Whole blocks of 32 queries and keys, in 32 bits, of which every query sees every key; of 16 for wide vectors."""
    compare(tensors(1, 1, 200, 200, 8), window=Window(70, 66))
    compare(tensors(1, 1, 80, 80, 80), window=Window(30, 25))
