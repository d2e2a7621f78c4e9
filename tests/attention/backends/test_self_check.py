"""The self-check of compiled backends, with the block backend in their place: right, and broken on purpose."""

import logging
import math
import random
from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_poolingformer.attention import (
    BACKENDS,
    DisentangledPosition,
    Pooling,
    RelativePositionBias,
    Window,
    band_attention,
)
from fairseq_poolingformer.attention.backends import reference, self_check
from fairseq_poolingformer.attention.backends.block import backend as block
from fairseq_poolingformer.attention.call import Call
from fairseq_poolingformer.attention.score_terms.unseen_tokens import UnseenTokens
from tests.attention.calls import random_arguments, tensors


def table(*shape):
    return torch.zeros(shape)


def positions(**more):
    return DisentangledPosition(c2p=table(4, 80, 8), p2c=table(4, 80, 8), **more)


def up_to(count):
    return torch.arange(90).expand(2, 90) < count


COARSE = {name: table(4, 6, 8) for name in ("global_c2p", "global_p2c")}
BESIDE_TOKENS = {
    **{"window": Window(60), "pooling": Pooling(4, 4)},
    "score_terms": [UnseenTokens(Window(9), Pooling(4, 4), torch.ones(2, 360, dtype=torch.bool))],
}
KINDS = {
    "window": {},
    "causal": {"window": Window(40, 0)},
    "one token": {"window": Window(0)},
    "dilated": {"window": Window(9, 9, (1, 1, 3, 3))},
    "unlimited": {"window": Window.unlimited()},
    "pools": {"window": Window(60), "pooling": Pooling(5, 4)},
    "small window of pools": {"window": Window(3), "pooling": Pooling(5, 16)},
    "query-aligned pools": {"window": Window(60), "pooling": Pooling(5, 4, "query")},
    "global tokens": {"global_mask": up_to(2), "key_padding_mask": up_to(9)},
    "many global tokens": {"global_mask": up_to(30)},
    "dropout": {"dropout_p": 0.1, "global_mask": up_to(1)},
    "dropout of pools": {"dropout_p": 0.1, "window": Window(60), "pooling": Pooling(5, 4)},
    "biases": {"score_terms": [RelativePositionBias(table(1, 9)), RelativePositionBias(table(4, 2049))]},
    "pools beside tokens": {**BESIDE_TOKENS, "return_lse": True},
    "dropout of pools beside tokens": {**BESIDE_TOKENS, "dropout_p": 0.1},
    "positions": {"score_terms": [positions()]},
    "positions of global tokens": {"score_terms": [positions(**COARSE, global_bucket=9)], "global_mask": up_to(1)},
    "logarithms": {"return_lse": True, "global_mask": up_to(2)},
}


def call_of(kind="window", dtype=torch.float32, queries=90, device="cpu"):
    inputs = (x.detach().to(device) for x in tensors(2, 4, queries, 90, 8, dtype))
    return Call.of(*inputs, **{"window": Window(30), **KINDS[kind]})


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(self_check, "LENGTH", 150)


@pytest.fixture
def compiled(monkeypatch):
    """Puts a backend with a self-check before all others; returns how often it ran."""

    def put(run):
        def counted(call):
            counted.times += 1
            return run(call)

        counted.times = 0
        checks = {"why_not": lambda call: None, "self_check": lambda call: self_check.failure(counted, call)}
        for name, function in {**checks, "run": counted}.items():
            monkeypatch.setattr(BACKENDS["triton"], name, function)
        return counted

    return put


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_right_backend_passes(kind, dtype):
    """In 16 bits the reference, since on some CPUs the block backend adds gradients up in 16 bits."""
    call = call_of(kind, dtype)
    run = reference.run if dtype == torch.bfloat16 and not call.dropout_p else block.run
    assert self_check.difference(run, call) is None


def test_a_right_backend_passes_whatever_the_call():
    """Where queries see one key, or tables have one distance, too: gradients are zero there but for rounding."""
    rng = random.Random(0)
    for case in range(100):
        batch, heads, head_dim = rng.randint(1, 2), rng.choice([1, 2]), rng.choice([1, 3, 8, 17, 256])
        queries, keys, columns = rng.randint(1, 90), rng.randint(1, 90), 2 * rng.choice([0, 2, 30]) + 1
        torch.manual_seed(case)
        arguments = random_arguments(rng, batch, heads, keys)
        if case % 3 == 0:
            arguments["score_terms"] = [RelativePositionBias(torch.randn(rng.choice([1, heads]), columns))]
        inputs = tensors(batch, heads, queries, keys, head_dim, torch.float32, seed=case)
        call = Call.of(*(x.detach() for x in inputs), return_lse=case % 2 == 0, **arguments)
        assert self_check.difference(block.run, call) is None, self_check.variant_of(call)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
@pytest.mark.parametrize("queries", [1, 90])
def test_a_right_backend_passes_in_every_dtype_and_for_few_queries(dtype, queries):
    for kind in ("window", "global tokens", "dropout"):
        assert self_check.difference(block.run, call_of(kind, dtype, queries)) is None


def test_the_small_problem_is_of_the_calls_variant(monkeypatch):
    monkeypatch.setattr(self_check, "LENGTH", 300)  # of which pools 16 tokens apart are not few keys
    for kind in KINDS:
        call = call_of(kind)
        for reach in self_check.REACHES:
            small, exact = (self_check.small_call(call, reach, exact=double) for double in (False, True))
            assert self_check.variant_of(small) == self_check.variant_of(call), kind
            assert exact.key.dtype == torch.float64
            assert torch.equal(small.key.double(), exact.key)


def with_another_gradient(name, factor):
    def run(call):
        x = getattr(call, name)
        return block.run(replace(call, **{name: x.detach() + factor * (x - x.detach())}))

    return run


def with_another_window(call):
    return block.run(replace(call, window=Window(call.window.left - 1, call.window.right)))


def without_dilation(call):
    return block.run(replace(call, window=Window(call.window.left, call.window.right)))


def changed(**changes):
    return lambda call: block.run(replace(call, **changes))


class Nan(torch.autograd.Function):
    """Identity with a NaN in its gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad.index_put([torch.tensor(0)] * 4, torch.tensor(torch.nan).to(grad))


def with_nan_in_a_gradient(call):
    return block.run(replace(call, key=Nan.apply(call.key)))


def with_another_mask_backward(call):
    other = block.run(call)
    return block.run(call).detach() + other - other.detach()


def with_half_the_gradient_of_logarithms(call):
    out, lse = block.run(call)
    return out, 0.5 * lse + 0.5 * lse.detach()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("kind", "run", "problem"),
    [
        ("window", lambda call: 1.1 * block.run(call), "the output differs"),
        ("window", lambda call: block.run(call) + torch.nan, "the output differs from the reference by nan"),
        ("window", with_another_window, "the output differs"),
        ("dilated", without_dilation, "the output differs"),
        ("pools", with_another_window, "the output differs"),
        ("window", with_another_gradient("query", 1.2), "the gradient of query differs"),
        ("global tokens", with_another_gradient("key", 0.0), "the gradient of key differs"),
        ("dropout", with_another_gradient("value", 1.2), "the gradient of value differs"),
        ("window", with_nan_in_a_gradient, "the gradient of key differs from the reference by nan"),
        ("biases", changed(score_terms=()), "the output differs"),
        ("dropout", changed(dropout_p=0.0), "dropout keeps 100% of the weights in place of 70%"),
        ("dropout", with_another_mask_backward, "the gradient of query differs"),
        ("logarithms", lambda call: (block.run(call)[0], block.run(call)[1] / 0.7), "the logarithms differ"),
        ("logarithms", with_half_the_gradient_of_logarithms, "the gradient of query differs"),
    ],
)
def test_a_wrong_backend_fails(kind, run, problem, dtype):
    assert problem in self_check.difference(run, call_of(kind, dtype))


def test_float32_may_be_rounded_where_torch_says_so():
    call, precision = call_of(), torch.get_float32_matmul_precision()
    assert self_check.difference(lambda call: 1.004 * block.run(call), call) is not None
    try:
        torch.set_float32_matmul_precision("high")
        assert self_check.difference(lambda call: 1.004 * block.run(call), call) is None
        assert self_check.difference(lambda call: 1.03 * block.run(call), call) is not None
    finally:
        torch.set_float32_matmul_precision(precision)


def attend(kind="window", **arguments):
    inputs = tensors(2, 4, 90, 90, 8, torch.float32)
    return band_attention(*inputs, **{"window": Window(30), **KINDS[kind], **arguments})


def raising(call):
    raise KeyError("no such\nregister")


@pytest.mark.parametrize(("run", "problem"), [(raising, "KeyError: 'no such"), (with_another_window, "the output")])
def test_the_next_backend_takes_over_and_a_named_one_refuses(compiled, caplog, run, problem):
    counted = compiled(run)
    for _ in range(2):
        torch.testing.assert_close(attend(), attend(backend="reference"), atol=1e-5, rtol=1e-5)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "triton is left out: its self-check failed (torch.float32, cpu, 8): " + problem in warning
    assert "\n" not in warning
    times = counted.times
    with pytest.raises(ValueError, match="backend 'triton' cannot run this call: its self-check failed"):
        attend(backend="triton")
    assert counted.times == times, "the check is repeated"


def test_a_variant_is_checked_once(compiled):
    counted = compiled(block.run)
    for queries in (90, 70, 50):
        inputs = tensors(2, 4, queries, 90, 8, torch.float32)
        band_attention(*inputs, window=Window(30 + queries))
    assert counted.times == 2 + 3
    attend("global tokens")
    assert counted.times == 2 + 3 + 3, "another variant is checked"
    try:
        torch.set_float32_matmul_precision("high")
        attend()
        assert counted.times == 2 + 3 + 3 + 3, "rounded factors make another variant"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_nothing_is_checked_while_a_graph_is_captured_and_what_failed_before_stays_out(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(self_check, "difference", lambda run, call: "it was computed")
    with FakeTensorMode():
        x = torch.empty(1, 2, 90, 8, device="cuda")
    call = Call.of(x, x, x, window=Window(3))
    assert self_check.failure(block.run, call) is None
    assert self_check.failure(block.run, call_of()) is not None, "on the CPU nothing is captured"
    monkeypatch.setitem(self_check._failures, (block.run, *self_check.variant_of(call)), "it failed")
    assert self_check.failure(block.run, call) == "it failed"


def test_without_memory_nothing_is_decided(compiled):
    def out_of_memory(call):
        if call.query.size(2) == 90:
            return block.run(call)
        raise torch.OutOfMemoryError("no memory")

    counted = compiled(out_of_memory)
    attend()
    attend()
    assert counted.times == 4, "it is tried again"


def test_kernels_beside_the_backends_are_checked_once_and_a_warning_names_them(monkeypatch, caplog):
    monkeypatch.setattr(self_check, "_failures", {})
    checked = []

    def check(dtype, device, size):
        checked.append(size)
        return self_check.excess(size / 10, dtype)

    for size in (0, 0, 7, 7, torch.nan, torch.nan):
        assert self_check.passes("a kernel", check, torch.float32, torch.device("cpu"), size) is (size == 0)
    assert checked == [0, 7, torch.nan]
    of_seven, of_nan = (record.getMessage() for record in caplog.records)
    assert of_seven.startswith("a kernel is left out: its self-check failed (torch.float32, cpu, 7): an error of 0.7, ")
    assert "an error of nan, more than 2e-05" in of_nan


@pytest.mark.parametrize("place", range(3))
def test_the_largest_error_is_relative_to_each_result_and_nan_counts_wherever_it_is(place):
    exact = [torch.tensor([4.0, -8.0]), torch.zeros(2), torch.tensor([1.0, 0.5])]
    assert self_check.largest_error(exact, exact) == 0.0
    actual = [x.clone() for x in exact]
    actual[place][0] += 1e-3
    assert self_check.largest_error(actual, exact) == pytest.approx([1e-3 / 8, 1e3, 1e-3][place], rel=1e-3)
    actual[place][1] = torch.nan
    assert math.isnan(self_check.largest_error(actual, exact))


@pytest.mark.parametrize("kind", ["window", "dropout"])
def test_the_caller_notices_nothing(compiled, kind):
    """Neither the random numbers nor hooks of saved tensors, and its modes do not reach the check."""
    compiled(block.run)
    packed, state = [], torch.random.get_rng_state()
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x.shape) or x, lambda x: x)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), hooks:
        assert BACKENDS["triton"].self_check(call_of(kind)) is None
    assert packed == []
    assert torch.equal(torch.random.get_rng_state(), state)
