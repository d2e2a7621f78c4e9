"""Linear layers that may be computed by their weights alone, and those that must be called."""

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrize, prune

from fairseq_poolingformer.attention.plain_linear import are_alike, is_plain_linear


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x


class Subclass(nn.Linear):
    pass


def with_forward_of_its_own(linear):
    linear.forward = lambda x: nn.Linear.forward(linear, 2 * x)


CHANGES = {
    "forward hook": lambda linear: linear.register_forward_hook(lambda module, args, out: 2 * out),
    "forward pre-hook": lambda linear: linear.register_forward_pre_hook(lambda module, args: (2 * args[0],)),
    "backward hook": lambda linear: linear.register_full_backward_hook(lambda module, inputs, grads: None),
    "backward pre-hook": lambda linear: linear.register_full_backward_pre_hook(lambda module, grads: None),
    "parametrization": lambda linear: parametrize.register_parametrization(linear, "weight", Doubled()),
    "weight norm": nn.utils.parametrizations.weight_norm,
    "pruning": lambda linear: prune.random_unstructured(linear, "weight", amount=0.5),
    "forward on the instance": with_forward_of_its_own,
}


def test_a_linear_layer_is_plain():
    linear = nn.Linear(3, 4)
    assert is_plain_linear(linear)
    linear.register_forward_hook(lambda *_: None).remove()
    assert is_plain_linear(linear)
    assert is_plain_linear(nn.Linear(3, 4, bias=False))


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_one_is_not(change):
    linear = nn.Linear(3, 4)
    CHANGES[change](linear)
    assert not is_plain_linear(linear)


def test_global_hooks_see_every_module():
    handle = register_module_forward_hook(lambda module, args, out: None)
    try:
        assert not is_plain_linear(nn.Linear(3, 4))
    finally:
        handle.remove()
    assert is_plain_linear(nn.Linear(3, 4))


def test_other_modules_are_not():
    class Weight(torch.Tensor):
        pass

    of_a_subclass = nn.Linear(3, 4)
    of_a_subclass.weight = nn.Parameter(of_a_subclass.weight.detach().as_subclass(Weight))
    for module in (nn.Sequential(nn.Linear(3, 4)), Subclass(3, 4), of_a_subclass):
        assert not is_plain_linear(module)


def test_layers_are_alike_where_all_are_plain_and_all_or_none_have_a_bias():
    biased, other, unbiased = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(3, 4, bias=False)
    assert are_alike([biased, other])
    assert are_alike([unbiased, nn.Linear(3, 4, bias=False)])
    assert not are_alike([biased, unbiased])
    assert not are_alike([unbiased, biased])
    assert not are_alike([biased, Subclass(3, 4)])
