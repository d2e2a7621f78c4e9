"""Attention weights recorded while a model runs, and a model that is as it was afterwards."""

import pytest
import torch

from fairseq_poolingformer.attention import TwoLevelAttention, Window, recorded_weights
from fairseq_poolingformer.attention.recorded_weights import recorded_calls


def test_recorded_weights_keep_what_is_asked_for_and_leave_the_model_as_it_was():
    level_one = TwoLevelAttention(8, 2, window=Window(3))
    model = torch.nn.Sequential(level_one, TwoLevelAttention(8, 2, window=Window(1)))
    with recorded_weights(model, keep=lambda weights: weights.level_one.band.shape) as recorded:
        model(torch.randn(1, 9, 8))
    assert recorded == {"0": (1, 2, 9, 7), "1": (1, 2, 9, 3)}
    assert level_one.weights(torch.randn(1, 9, 8)).level_two is None
    recorded.clear()
    with pytest.raises(ZeroDivisionError), recorded_weights(model):
        raise ZeroDivisionError
    model(torch.randn(1, 9, 8))
    assert not recorded
    assert not model[1]._forward_pre_hooks


def test_the_last_call_of_each_module_of_the_kind_is_recorded():
    class Twice(torch.nn.Linear):
        def forward(self, x, times=1):
            return times * super().forward(x)

    model = torch.nn.ModuleDict({"one": Twice(2, 2), "two": torch.nn.ModuleList([Twice(2, 2), torch.nn.Tanh()])})
    with recorded_calls(model, Twice, lambda module, x, times=1: (module, x.sum().item(), times)) as recorded:
        model["one"](torch.ones(1, 2))
        model["one"](torch.ones(3, 2), times=5)
        model["two"][0](torch.zeros(1, 2))
        model["two"][1](torch.zeros(1, 2))
    assert recorded == {"one": (model["one"], 6.0, 5), "two.0": (model["two"][0], 0.0, 1)}


def test_recording_leaves_no_graph():
    attention = TwoLevelAttention(8, 2, window=Window(3))
    with recorded_weights(attention) as recorded:
        attention(torch.randn(1, 9, 8)).sum().backward()
    assert not recorded[""].level_one.band.requires_grad
    assert attention.q_proj.weight.grad is not None
