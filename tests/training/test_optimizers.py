"""fused_adamw beside fairseq's adam, with learning rates of its own, and clipped_adagrad; resumed in tests/patches."""

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim import FP16Optimizer
from fairseq.optim.adam import Adam

from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.training.optimizers import (
    HEAD,
    POOLED,
    ClippedAdagrad,
    FairseqClippedAdagrad,
    FairseqFusedAdamW,
    FusedAdamW,
    parse_betas,
)
from tests.patches.helpers import train
from tests.patches.test_half_precision import HALF

ADAM = ["--adam-betas", "(0.9, 0.98)", "--weight-decay", "0.01", "--clip-norm", "0.5", "--update-freq", "2"]
PRECISIONS = {"float32": [], "amp": ["--amp"], **{name: flags for name, (flags, _) in HALF.items()}}


def quadratic(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in [(5, 7), (3,)]]
    scales = 10.0 ** torch.arange(-3, 3)
    gradients = [
        [(torch.randn(p.shape, generator=generator) * scales[n % 6]).to(dtype) for p in parameters] for n in range(20)
    ]
    return parameters, gradients


def settings(**options):
    defaults = {"lr": [0.01], "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-8, "weight_decay": 0.0}
    return SimpleNamespace(**(defaults | {"head_lr": 0.0, "pooled_lr": 0.0} | options))


def updated(optimizer, parameters, gradients):
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
    return [parameter.detach().clone() for parameter in parameters]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_twenty_updates_equal_those_of_fairseqs_adam(dtype):
    # fairseq's ε has another place in the formula
    arguments, results = {"lr": 0.01, "betas": (0.9, 0.98), "weight_decay": 0.1, "eps": 1e-20}, []
    for make in (partial(FusedAdamW, fused=True), Adam):
        parameters, gradients = quadratic(dtype)
        results.append(updated(make(parameters, **arguments), parameters, gradients))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("make", [FusedAdamW, lambda params: ClippedAdagrad(params, lr=0.01, clip_norm=0.03)])
def test_a_state_of_another_size_is_refused(make):
    """torch's fused kernel would write beyond it."""
    small, large = (torch.ones(rows, 4, requires_grad=True) for rows in (3, 5))
    optimizer = make([small])
    updated(optimizer, [small], [[torch.ones(3, 4)]])
    with pytest.raises(UsageError, match=r"a state of \(3, 4\) for a parameter of \(5, 4\): .* --finetune-from-model"):
        make([large]).load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("make", [partial(FusedAdamW, fused=True), partial(ClippedAdagrad, clip_norm=0.03)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_states_of_half_precision_parameters_are_float32(dtype, make):
    """A squared gradient of 1e-5 is zero in float16, and the update would be infinite."""
    parameter = torch.ones(3, dtype=dtype, requires_grad=True)
    optimizer = make([parameter], lr=0.01)
    parameter.grad = torch.full((3,), 1e-5, dtype=dtype)
    optimizer.step()
    assert {value.dtype for value in optimizer.state[parameter].values()} == {torch.float32}
    torch.testing.assert_close(parameter.detach(), torch.full((3,), 0.99, dtype=dtype))


def test_a_state_of_another_type_goes_on_as_its_own():
    """As fairseq loads one from a checkpoint: neither moved nor converted."""
    results = []
    for changes in (False, True):
        parameter = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float16))
        optimizer = FusedAdamW([parameter], lr=0.01, fused=True)
        for gradient in (0.5, -0.25):
            parameter.grad = torch.full_like(parameter, gradient)
            optimizer.step()
            if changes:
                state = optimizer.state[parameter]
                state |= {name: value.double() for name, value in state.items()} | {"step": state["step"].item()}
        results.append(parameter.detach())
    assert torch.equal(*results)


@pytest.mark.parametrize(
    "precision",
    [name if name in ("float32", "fp16") else pytest.param(name, marks=pytest.mark.full) for name in PRECISIONS],
)
def test_training_equals_adams(corpus, tmp_path, logged, precision):
    flags = [*ADAM, *PRECISIONS[precision], "--batch-size", "1", "--max-update", "12"]
    for name, optimizer in (("ours", "fused_adamw"), ("theirs", "adam")):
        train(corpus, tmp_path / name, *flags, "--optimizer", optimizer)
    losses, half = [output["loss"] for output in logged["train_step"]], PRECISIONS[precision] not in ([], ["--amp"])
    assert losses[:12] == pytest.approx(losses[12:], rel=0.01 if half else 0, abs=0.0011)  # logged to 0.001


def test_settings_given_on_resuming_win_and_the_kernel_stays_fused():
    cfg = settings(lr=[0.1])
    parameters, gradients = quadratic()
    theirs = Adam(parameters, lr=0.5, betas=(0.8, 0.9))
    updated(theirs, parameters, gradients)
    optimizer = FairseqFusedAdamW(cfg, parameters)
    optimizer.load_state_dict(theirs.state_dict(), optimizer.optimizer_config)
    (group,) = optimizer.param_groups
    assert "lr_scale" not in group
    assert (group["lr"], group["betas"], group["fused"]) == (0.1, (0.9, 0.98), True)
    assert all(int(state["step"]) == 20 for state in optimizer.optimizer.state.values())
    updated(optimizer, parameters, gradients)


RATES = [(HEAD, "head_lr"), (POOLED, "pooled_lr")]


def with_rate(lr, rate, mark, name):
    """Two parameters, the second one a head's or level two's, and their optimizer."""
    parameters, gradients = quadratic(torch.float64)
    parameters[1].param_group = mark
    return parameters, gradients, FairseqFusedAdamW(settings(lr=[lr], weight_decay=0.1, **{name: rate}), parameters)


@pytest.mark.parametrize("mark", RATES)
def test_a_learning_rate_of_its_own_rises_and_decays_with_the_others(mark):
    """Twenty updates equal those of two optimizers; they go on from a saved state half-way."""
    parameters, gradients, _ = with_rate(0.01, 0.1, *mark)
    common, rates = {"betas": (0.9, 0.98), "weight_decay": 0.1}, (0.01, 0.1)
    separate = [torch.optim.AdamW([p], lr=lr, **common) for p, lr in zip(parameters, rates, strict=True)]
    for number, step in enumerate(gradients):
        for parameter, gradient, optimizer, lr in zip(parameters, step, separate, rates, strict=True):
            optimizer.param_groups[0]["lr"] = lr * (20 - number) / 20
            updated(optimizer, [parameter], [[gradient]])
    expected = [parameter.detach().clone() for parameter in parameters]

    parameters, _, optimizer = with_rate(0.01, 0.1, *mark)
    for number, step in enumerate(gradients):
        if number == 10:
            values, state = [parameter.detach().clone() for parameter in parameters], optimizer.state_dict()
            parameters, _, optimizer = with_rate(0.01, 0.1, *mark)
            optimizer.load_state_dict(state, optimizer.optimizer_config)
            for parameter, value in zip(parameters, values, strict=True):
                parameter.data.copy_(value)
        optimizer.set_lr(0.01 * (20 - number) / 20)
        assert optimizer.get_lr() == pytest.approx(0.01 * (20 - number) / 20)
        actual = updated(optimizer, parameters, [step])
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("mark", RATES)
def test_a_learning_rate_of_its_own_given_on_resuming_wins(mark):
    _, _, old = with_rate(0.01, 0.1, *mark)
    _, _, resumed = with_rate(0.02, 0.03, *mark)
    resumed.load_state_dict(old.state_dict(), resumed.optimizer_config)
    assert [group["lr"] for group in resumed.param_groups] == pytest.approx([0.02, 0.03])


def test_a_head_and_level_two_have_one_each():
    """Parameters that are marked, but have no rate given, stay with the others."""
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(3)]
    parameters[0].param_group, parameters[2].param_group = POOLED, HEAD
    for options, expected in (
        ({"head_lr": 0.1, "pooled_lr": 0.03}, [(1, 0.01), (2, 0.1), (0, 0.03)]),
        ({"pooled_lr": 0.03}, [(1, 0.01), (2, 0.01), (0, 0.03)]),
        ({}, [(0, 0.01), (1, 0.01), (2, 0.01)]),
    ):
        groups = FairseqFusedAdamW(settings(**options), parameters).param_groups
        rates_of = [(id(parameter), group["lr"]) for group in groups for parameter in group["params"]]
        assert [number for number, _ in rates_of] == [id(parameters[number]) for number, _ in expected]
        assert [rate for _, rate in rates_of] == pytest.approx([rate for _, rate in expected])


@pytest.mark.parametrize("mark", RATES)
def test_half_precision_keeps_a_learning_rate_of_its_own_only_without_flat_parameters(mark):
    parameters, _, _ = with_rate(0.01, 0.1, *mark)
    cfg = settings(**{mark[1]: 0.1})
    args = SimpleNamespace(common=SimpleNamespace(pipeline_model_parallel=False))
    copies = FP16Optimizer.build_fp32_params(args, parameters, flatten=False)
    assert [group["lr"] for group in FairseqFusedAdamW(cfg, copies).param_groups] == pytest.approx([0.01, 0.1])
    flat = torch.nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
    with pytest.raises(ValueError, match="--fp16 needs --fp16-no-flatten-grads"):
        FairseqFusedAdamW(cfg, [flat])


# ----- clipped_adagrad

SHAPES = [(4, 3), (5,), (2, 2, 3)]


def clipped_gradients(updates=30):
    """Gradients whose norms lie on both sides of 0.03."""
    generator, scales = torch.Generator().manual_seed(0), [0.0005, 0.004, 0.02, 0.5, 100.0]
    return [
        [
            scales[(update + place) % 5] * torch.randn(shape, generator=generator, dtype=torch.float64)
            for place, shape in enumerate(SHAPES)
        ]
        for update in range(updates)
    ]


def start():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in SHAPES]


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
def test_clipped_adagrad_equals_its_definition(clip, decay):
    steps, parameters = clipped_gradients(), start()
    expected = [
        by_definition(parameter.detach(), list(column), 0.07, clip, decay)
        for parameter, column in zip(parameters, zip(*steps, strict=True), strict=True)
    ]
    optimizer = ClippedAdagrad(parameters, lr=0.07, clip_norm=clip, weight_decay=decay)
    torch.testing.assert_close(updated(optimizer, parameters, steps), expected, atol=1e-6, rtol=0)


def test_options_of_clipped_adagrad_given_on_resuming_win():
    """And --fp16 does not make one tensor of all parameters: fairseq refuses with the flag that prevents it."""
    cfg, parameters = SimpleNamespace(lr=[0.1], parameter_clip_norm=0.5, weight_decay=0.0), start()
    theirs = ClippedAdagrad(parameters, lr=0.5, clip_norm=0.03)
    updated(theirs, parameters, clipped_gradients(updates=2))
    optimizer = FairseqClippedAdagrad(cfg, parameters)
    optimizer.load_state_dict(theirs.state_dict(), optimizer.optimizer_config)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["clip_norm"]) == (0.1, 0.5)
    assert not optimizer.supports_flat_params


BETAS = ["0.9", "(0.9, 1.0)", "(0.9, 0.98, 0.99)", "('a', 'b')", "nonsense(", (0.5,), None]
CLIP = "--parameter-clip-norm must be 0 or more"
RATIO = "--{} must be 0 or more, and --lr more than 0"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((partial(parse_betas, betas), "--adam-betas must be two numbers") for betas in BETAS),
        *(
            (partial(with_rate, lr, rate, mark, name), RATIO.format(name.replace("_", "-")))
            for mark, name in RATES
            for lr, rate in ((0.01, -0.1), (0.0, 0.1))
        ),
        *((partial(ClippedAdagrad, start(), lr=0.1, clip_norm=clip), CLIP) for clip in (-0.1, math.nan)),
    ],
)
def test_wrong_options_are_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call()
