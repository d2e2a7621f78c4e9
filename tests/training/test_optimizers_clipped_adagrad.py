"""clipped_adagrad against its definition, and in half precision."""

import math
from types import SimpleNamespace

import pytest
import torch

from fairseq_poolingformer.training.optimizers import ClippedAdagrad, FairseqClippedAdagrad

SHAPES = [(4, 3), (5,), (2, 2, 3)]


def gradients(dtype=torch.float64, updates=30):
    """Gradients whose norms lie on both sides of 0.03."""
    generator = torch.Generator().manual_seed(0)
    scales = [0.0005, 0.004, 0.02, 0.5, 100.0]
    return [
        [
            (scales[(update + place) % 5] * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
            for place, shape in enumerate(SHAPES)
        ]
        for update in range(updates)
    ]


def start(dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in SHAPES]


def update(optimizer, parameters, steps):
    for step in steps:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()


def by_definition(parameter, steps, lr, clip, decay):
    """One number at a time: the sum of squares knows no clipping, the learning rate is scaled by min(1, c/‖g‖)."""
    values, sums = parameter.flatten().tolist(), [0.0] * parameter.numel()
    for step in steps:
        g = [x + decay * value for x, value in zip(step.flatten().tolist(), values, strict=True)]
        norm = math.sqrt(sum(x * x for x in g))
        rate = lr * min(1.0, clip / norm) if clip else lr
        sums = [total + x * x for total, x in zip(sums, g, strict=True)]
        values = [value - rate * x / math.sqrt(total) for value, x, total in zip(values, g, sums, strict=True)]
    return torch.tensor(values, dtype=torch.float64).view(parameter.shape)


@pytest.mark.parametrize(("clip", "decay"), [(0.03, 0.0), (0.03, 0.1), (0.0, 0.0)])
def test_equals_its_definition(clip, decay):
    steps = gradients()
    expected = [
        by_definition(parameter.detach(), list(column), 0.07, clip, decay)
        for parameter, column in zip(start(), zip(*steps, strict=True), strict=True)
    ]
    parameters = start()
    update(ClippedAdagrad(parameters, lr=0.07, clip_norm=clip, weight_decay=decay), parameters, steps)
    for parameter, wanted in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), wanted, atol=1e-6, rtol=0)


def test_differs_from_clipping_all_gradients_before_they_are_squared():
    steps, ours, theirs = gradients(), start(), start()
    update(ClippedAdagrad(ours, lr=0.07, clip_norm=0.03), ours, steps)
    optimizer = torch.optim.Adagrad(theirs, lr=0.07)
    for step in steps:
        for parameter, gradient in zip(theirs, step, strict=True):
            parameter.grad = gradient.clone()
        torch.nn.utils.clip_grad_norm_(theirs, 0.03)
        optimizer.step()
    moved = [
        sum((end - begin).norm().item() for end, begin in zip(parameters, start(), strict=True))
        for parameters in (ours, theirs)
    ]
    assert moved[0] < 0.8 * moved[1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_of_half_precision_parameters_are_float32(dtype):
    """The square of a gradient of 1e-5 is zero in float16, and the update would be infinite."""
    parameter = torch.ones(3, dtype=dtype, requires_grad=True)
    optimizer = ClippedAdagrad([parameter], lr=0.01, clip_norm=0.03)
    parameter.grad = torch.full((3,), 1e-5, dtype=dtype)
    optimizer.step()
    assert optimizer.state[parameter]["sum"].dtype == torch.float32
    torch.testing.assert_close(parameter.detach(), torch.full((3,), 0.99, dtype=dtype))


def test_options_given_on_resuming_win():
    cfg = SimpleNamespace(lr=[0.1], parameter_clip_norm=0.5, weight_decay=0.0)
    parameters = start()
    theirs = ClippedAdagrad(parameters, lr=0.5, clip_norm=0.03)
    update(theirs, parameters, gradients(updates=2))
    optimizer = FairseqClippedAdagrad(cfg, parameters)
    optimizer.load_state_dict(theirs.state_dict(), optimizer.optimizer_config)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["clip_norm"]) == (0.1, 0.5)


@pytest.mark.parametrize("clip", [-0.1, math.nan])
def test_a_wrong_norm_is_explained(clip):
    with pytest.raises(ValueError, match="--parameter-clip-norm must be 0 or more"):
        ClippedAdagrad(start(), lr=0.1, clip_norm=clip)


def test_parameters_are_not_joined():
    """fairseq asks this before --fp16 makes one tensor of all, and refuses with the flag that prevents it."""
    cfg = SimpleNamespace(lr=[0.1], parameter_clip_norm=0.5, weight_decay=0.0)
    assert not FairseqClippedAdagrad(cfg, start()).supports_flat_params
