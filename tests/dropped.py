"""Dropout as its definition says, for tests of the places where a model has it."""

from collections.abc import Callable

import torch
from torch import Tensor


def assert_dropped(draw: Callable[[], Tensor], whole: Tensor, probability: float, runs: int = 20) -> None:
    """Every element is 0 or ``whole / (1 - probability)``, as often as it should be, and independently of the others.

    Args:
        draw: gives elements, some of them dropped, with another mask at each call.
        whole: what they are without dropout.
        probability: that of dropping one.
        runs: calls.
    """
    samples = torch.stack([draw() for _ in range(runs)])
    torch.testing.assert_close(samples, torch.where(samples != 0, whole / (1 - probability), 0.0), atol=1e-5, rtol=1e-4)
    there = (whole != 0).to(samples).expand_as(samples)
    excess = ((samples != 0).to(samples) - (1 - probability)) * there
    variance = probability * (1 - probability)
    assert excess.sum().abs() < 5 * (there.sum() * variance).sqrt(), "another share is dropped"
    for dim in range(excess.dim()):  # a mask that is shared along a dimension, or by all calls, has larger sums there
        assert excess.sum(dim).pow(2).sum() < 1.5 * variance * there.sum(), f"dimension {dim} shares a mask"


def identity(*linears: torch.nn.Linear) -> None:
    """Make square linear layers hand on what they get."""
    for linear in linears:
        torch.nn.init.eye_(linear.weight)
        if linear.bias is not None:
            torch.nn.init.zeros_(linear.bias)


def zero(*linears: torch.nn.Linear) -> None:
    """Make linear layers return zeros."""
    for linear in linears:
        for parameter in linear.parameters():
            torch.nn.init.zeros_(parameter)
