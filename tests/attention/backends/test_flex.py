"""FlexAttention as a backend: its masks and score functions uncompiled, the blocks that it visits, one compiled call.

Uncompiled, FlexAttention asks the functions about every pair, and computes gradients on a CPU as well, where its check
of the device is switched off; it does not read the blocks. Those are compared with the pairs that see each other.
"""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex
from torch._dynamo.testing import CompileCounterWithBackend

from fairseq_poolingformer.attention import (
    DisentangledPosition,
    GlobalTokens,
    Pooling,
    RelativePositionBias,
    Window,
    band_attention,
)
from fairseq_poolingformer.attention.backends import flex, reference
from fairseq_poolingformer.attention.call import Call
from tests.attention.calls import assert_equals_reference, random_arguments, right_padding, tensors


@pytest.fixture
def uncompiled(monkeypatch):
    """The backend runs uncompiled, in float64 as well, and with gradients."""
    monkeypatch.setattr(flex, "why_not", lambda call: None)
    monkeypatch.setattr(flex, "_compiled", lambda: torch_flex.flex_attention)
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *_: None)
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.usefixtures("uncompiled")
def test_unlimited_windows(causal):
    assert_equals_reference(tensors(2, 2, 97, 97, 5), "flex", window=Window.unlimited(causal=causal))


@pytest.mark.parametrize("pooling", [None, Pooling(3, 2), Pooling(3, 2, "query")])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.usefixtures("uncompiled")
def test_score_terms_and_their_gradients(monkeypatch, pooling):
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", False)  # else tables have no gradient
    inputs = tensors(2, 2, 30, 30 if pooling is None else pooling.num_pools(30), 4)
    tables = [torch.randn(*shape, requires_grad=True) for shape in ((2, 9), (1, 3))]
    assert_equals_reference(
        inputs,
        "flex",
        extra=tables,
        tolerance=1e-5,  # the sum of the tables is of 32 bits
        window=Window(5),
        pooling=pooling,
        query_offset=2,
        score_terms=[RelativePositionBias(table) for table in tables],
    )


@pytest.mark.usefixtures("uncompiled")
def test_random_sweep():
    rng = random.Random(0)
    for case in range(40):
        batch, heads, head_dim = rng.randint(1, 3), rng.choice([1, 2, 4]), rng.choice([1, 3, 8])
        queries, keys = rng.randint(1, 90), rng.randint(1, 90)
        inputs = tensors(batch, heads, queries, keys, head_dim, seed=case)
        assert_equals_reference(inputs, "flex", **random_arguments(rng, batch, heads, keys))


@pytest.mark.usefixtures("uncompiled")
def test_masks_changed_before_the_backward_pass_change_no_gradient():
    inputs = tensors(2, 2, 40, 40, 4)
    masks = {"key_padding_mask": right_padding([40, 23], 40), "global_mask": torch.arange(40).expand(2, 40) % 13 == 1}
    expected = torch.autograd.grad(band_attention(*inputs, window=Window(3), backend="flex", **masks).sum(), inputs)
    masks = {name: mask.clone() for name, mask in masks.items()}
    out = band_attention(*inputs, window=Window(3), backend="flex", **masks)
    for mask in masks.values():
        mask.logical_not_()
    for actual, grad in zip(torch.autograd.grad(out.sum(), inputs), expected, strict=True):
        assert torch.equal(actual, grad)
    assert_equals_reference(inputs, "flex", window=Window(3), **masks)  # nor is an earlier call's block mask used


def test_layers_that_share_their_masks_share_one_block_mask():
    x, padding = torch.zeros(2, 2, 40, 4), right_padding([40, 23], 40)
    tokens = GlobalTokens(torch.arange(40).expand(2, 40) < 1)

    def mask(**changes):
        arguments = {"window": Window(3), "global_mask": tokens, "key_padding_mask": padding, **changes}
        return flex._made_before(flex._Places.of(Call.of(x + 1.0, x, x, **arguments)))

    first = mask()
    assert mask() is first
    for changes in ({"window": Window(4)}, {"global_mask": tokens.mask}, {"key_padding_mask": padding.clone()}):
        assert mask(**changes) is not first
    with torch.inference_mode():
        assert mask() is not first
        in_inference = padding.clone()
        assert mask(key_padding_mask=in_inference) is not mask(key_padding_mask=in_inference)


def compile_with(monkeypatch, backend):
    """Compile as on a GPU, gradients too, to other code than a GPU's; the backend is called for each variant."""
    torch._dynamo.reset()
    compiled = torch.compile(torch_flex.flex_attention, backend=backend, fullgraph=True)
    monkeypatch.setattr(flex, "_compiled", lambda: compiled)
    monkeypatch.setattr(flex, "why_not", lambda call: None)
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *_: None)


def test_gradients_of_what_was_compiled(monkeypatch):
    """Of a table that is not a leaf, too, and inside of a compiled function, which leaves its graph for the backend."""
    compile_with(monkeypatch, "aot_eager")
    table = torch.randn(2, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)

    def attend(query, key, value, backend):
        term = RelativePositionBias(table * 2.0)
        return 3.0 * band_attention(2.0 * query, key, value, window=Window(4), score_terms=[term], backend=backend)

    inputs = [*tensors(2, 2, 30, 30, 4), table]
    results = []
    for function, backend in ((attend, "reference"), (torch.compile(attend, backend="eager"), "flex")):
        out = function(*inputs[:3], backend)
        results.append((out, *torch.autograd.grad(out.square().sum(), inputs)))
    for actual, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-5)


@torch.no_grad()
def test_lengths_windows_and_pools_are_not_compiled_again(monkeypatch):
    """After the second length."""
    counter = CompileCounterWithBackend("eager")
    compile_with(monkeypatch, counter)
    counts = []
    for length, batch, side in ((520, 2, 9), (600, 3, 9), (531, 4, 70), (700, 2, 200)):
        for pooling in (None, Pooling(5, 4), Pooling(3, 2)):
            inputs = tensors(batch, 2, length, length if pooling is None else pooling.num_pools(length), 4)
            arguments = {"window": Window(side), "pooling": pooling}
            outs = [band_attention(*inputs, backend=backend, **arguments) for backend in ("flex", "reference")]
            torch.testing.assert_close(*outs, atol=1e-12, rtol=0)
        counts.append(counter.frame_count)
    assert counts[1] <= 3
    assert counts[-1] == counts[1]


@pytest.mark.slow
@torch.no_grad()
def test_compiled_for_a_cpu(monkeypatch):
    """The kernel reads the blocks, the functions only where a block is not full: all lengths by two compilations."""
    monkeypatch.setattr(flex, "why_not", lambda call: None)
    for length in (500, 700, 1030):
        inputs = [x.detach() for x in tensors(2, 2, length, length, 64, torch.float32)]
        masks = {"global_mask": torch.arange(length).expand(2, length) < 2}
        masks["key_padding_mask"] = right_padding([length, length - 150], length)
        for window in (Window(20), Window(200, 30)):
            out, expected = (
                band_attention(*inputs, window=window, backend=backend, **masks) for backend in ("flex", "reference")
            )
            torch.testing.assert_close(out, expected, atol=1e-5, rtol=0)


def test_the_blocks_that_it_visits_are_those_with_pairs_that_see_each_other():
    """In full blocks all pairs see each other; with gaps and padding, some blocks may be visited in vain."""
    rng = random.Random(1)
    for _ in range(60):
        queries, keys = rng.choice([(1, 300), (384, 384), (700, 700), (700, 175), (300, 640)])
        arguments = random_arguments(rng, 2, 2, keys)
        side = rng.choice([0, 100, 300])
        dilation = 1 if "pooling" in arguments else rng.choice([1, 1, 3, (1, 3)])
        arguments["window"] = Window(side, rng.choice([None, 0, 260]), dilation)
        x, y = torch.zeros(2, 2, queries, 1), torch.zeros(2, 2, keys, 1)
        call = Call.of(x, y, y, **arguments)
        mask = flex.block_mask(flex.Pattern.of(call))
        seen = reference.visibility(call)
        size = [-(-n // flex.BLOCK) for n in (queries, keys)]
        whole = torch.zeros(2, 2, *(n * flex.BLOCK for n in size), dtype=torch.bool)
        whole[:, :, :queries, :keys] = seen
        whole = whole.unflatten(3, (-1, flex.BLOCK)).unflatten(2, (-1, flex.BLOCK))  # (B, H, I, 128, J, 128)
        some, all_of_them = whole.any(5).any(3), whole.all(5).all(3)
        visited, full = (
            torch_flex.BlockMask.from_kv_blocks(*blocks).to_dense().bool().expand_as(some)
            for blocks in ((mask.kv_num_blocks, mask.kv_indices), (mask.full_kv_num_blocks, mask.full_kv_indices))
        )
        assert not (visited & full).any()
        assert not (full & ~all_of_them).any()
        assert not (some & ~visited & ~full).any()
        if not flex.Pattern.of(call).with_steps:
            in_vain = visited & ~some
            real = None if call.key_padding_mask is None else ~call.key_padding_mask
            assert real is not None or not in_vain.any()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"dropout_p": 0.1}, "no dropout"),
        ({"score_terms": (DisentangledPosition(c2p=torch.zeros(2, 8, 4)),)}, "no function for DisentangledPosition"),
    ],
)
def test_what_it_does_not_compute_it_refuses(arguments, reason):
    x = torch.zeros(1, 2, 30, 4)
    with pytest.raises(ValueError, match=reason):
        band_attention(x, x, x, window=Window(3), backend="flex", **arguments)


def test_where_it_does_not_run(monkeypatch):
    x = torch.zeros(1, 2, 30, 4)
    assert "it runs on GPUs, query is on cpu" in flex.why_not(Call.of(x, x, x, window=Window(3)))
    table = torch.zeros(2, 3, requires_grad=True)
    call = Call.of(x, x, x, window=Window(3), score_terms=(RelativePositionBias(table),))
    empty = torch.zeros(0, 2, 30, 4)
    assert "no empty batch" in flex.why_not(Call.of(empty, empty, empty, window=Window(3)))
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert "in no fixed order" in flex.why_not(call)
    x = x.double()
    assert "query is float64" in flex.why_not(Call.of(x, x, x, window=Window(3)))
    x = torch.zeros(1, 2, 30, 4, device="meta")
    assert "query is on meta" in flex.why_not(Call.of(x, x, x, window=Window(3)))
