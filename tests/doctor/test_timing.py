"""Times of the levels: on a CPU and on a pretended device."""

import time

import pytest
import torch

from fairseq_poolingformer.attention import BACKENDS
from fairseq_poolingformer.doctor import timing
from tests.other_device import other_device

FEW = {name: BACKENDS[name] for name in ("triton", "block", "reference", "sdpa")}  # none that compiles here


@pytest.fixture(params=["cpu", "meta"])
def device(request, monkeypatch):
    monkeypatch.setattr(timing, "LIMIT_OF_GPU", (64, 64, 2))
    monkeypatch.setattr(timing, "CALLS_ON_GPU", 2)
    monkeypatch.setattr(timing, "BACKENDS", FEW)
    if request.param == "cpu":
        yield "cpu"
    else:
        with other_device():
            yield "meta"


def test_times_of_both_levels(device):
    rate = timing.matmul_rate(device, torch.float32)
    assert rate > 1e6
    found = {(x.operator, x.backend): x for x in timing.times(device, torch.float32, 160, rate)}
    assert list(found) == [
        *((level, name) for level in ("level one", "level two") for name in ("triton", "block")),
        ("full attention", "sdpa"),
    ]
    assert "backend 'triton' cannot run this call" in found["level one", "triton"].failures["forward"]
    for x in (found["level one", "block"], found["level two", "block"], found["full attention", "sdpa"]):
        assert x.failures == {}
        assert x.seconds["forward"] > 0
        products = {"forward": 2, "both": 7}
        keys = {"level one": 257, "level two": 257, "full attention": 160}[x.operator]
        for passes, share in x.of_limit.items():
            expected = products[passes] * 160 * 768 * keys / rate / x.seconds[passes]
            assert share == pytest.approx(expected)


def test_the_time_is_that_of_one_call(monkeypatch):
    monkeypatch.setattr(timing, "CALLS_ON_GPU", 4)
    ticks = iter(range(1000))
    monkeypatch.setattr(timing, "clock", lambda device: 8.0 * next(ticks))
    calls = []
    assert timing.seconds_of(lambda: calls.append(time), "cuda:0") == 2.0
    assert len(calls) == 4 * (1 + timing.RUNS)
