"""fused_adamw beside fairseq's adam, and resumed: on the command line, in every precision."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.adam import Adam
from fairseq.trainer import Trainer

from fairseq_poolingformer.optim.fused_adamw import FairseqFusedAdamW, FusedAdamW, parse_betas
from tests.compat.helpers import assert_same_parameters, train
from tests.compat.test_precision import HALF

ADAM = ["--adam-betas", "(0.9, 0.98)", "--weight-decay", "0.01", "--clip-norm", "0.5", "--update-freq", "2"]
PRECISIONS = {"float32": [], "amp": ["--amp"], **{name: flags for name, (flags, _) in HALF.items()}}


def quadratic(dtype=torch.float32):
    """Two parameters, and gradients for twenty updates that differ much in size."""
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in [(5, 7), (3,)]]
    scales = 10.0 ** torch.arange(-3, 3)
    gradients = [
        [(torch.randn(p.shape, generator=generator) * scales[n % 6]).to(dtype) for p in parameters] for n in range(20)
    ]
    return parameters, gradients


def updated(optimizer, parameters, gradients):
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
    return [parameter.detach().clone() for parameter in parameters]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_twenty_updates_equal_those_of_fairseqs_adam(dtype):
    # fairseq's ε has another place in the formula
    arguments = {"lr": 0.01, "betas": (0.9, 0.98), "weight_decay": 0.1, "eps": 1e-20}
    parameters, gradients = quadratic(dtype)
    ours = updated(FusedAdamW(parameters, fused=True, **arguments), parameters, gradients)
    parameters, gradients = quadratic(dtype)
    theirs = updated(Adam(parameters, **arguments), parameters, gradients)
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_moments_of_half_precision_parameters_are_float32(dtype):
    """A squared gradient of 1e-5 is zero in float16, and the update would be infinite."""
    parameter = torch.ones(3, dtype=dtype, requires_grad=True)
    optimizer = FusedAdamW([parameter], lr=0.01, fused=True)
    parameter.grad = torch.full((3,), 1e-5, dtype=dtype)
    optimizer.step()
    assert {value.dtype for value in optimizer.state[parameter].values()} == {torch.float32}
    torch.testing.assert_close(parameter.detach(), torch.full((3,), 0.99, dtype=dtype))


@pytest.fixture
def losses(monkeypatch):
    """The loss of every update, as the trainer logs it."""
    recorded = []
    step = Trainer.train_step

    def train_step(self, samples, **kwargs):
        output = step(self, samples, **kwargs)
        recorded.append(output["loss"])
        return output

    monkeypatch.setattr(Trainer, "train_step", train_step)
    return recorded


@pytest.mark.parametrize("precision", PRECISIONS)
def test_training_equals_adams_and_resumes_to_the_bit(corpus, tmp_path, losses, precision):
    """The checkpoint of update 6 leads to the parameters of a run that never stopped.

    With ``--fp16`` and ``--bf16`` only about: fairseq's checkpoints do not hold the float32 copies of the parameters.
    """
    flags = [*ADAM, *PRECISIONS[precision], "--batch-size", "1", "--max-update", "12", "--save-interval-updates", "6"]
    ours = train(corpus, tmp_path / "ours", *flags, "--optimizer", "fused_adamw")
    train(corpus, tmp_path / "theirs", *flags)
    half = PRECISIONS[precision] not in ([], ["--amp"])
    assert losses[:12] == pytest.approx(losses[12:], rel=0.01 if half else 0, abs=0.0011)  # logged to 0.001

    halfway = next((tmp_path / "ours").glob("checkpoint_*_6.pt"))
    resumed = train(corpus, tmp_path / "resumed", *flags, "--optimizer", "fused_adamw", "--restore-file", halfway)
    assert resumed["optimizer_history"][-1]["num_updates"] == 12
    copies_lost = half and "memory-efficient" not in precision
    assert_same_parameters(resumed, ours, **dict.fromkeys(("rtol", "atol"), 0.03 if copies_lost else 0.0))


def test_settings_given_on_resuming_win_and_the_kernel_stays_fused():
    cfg = SimpleNamespace(lr=[0.1], adam_betas="(0.9, 0.98)", adam_eps=1e-8, weight_decay=0.0)
    parameters, gradients = quadratic()
    theirs = Adam(parameters, lr=0.5, betas=(0.8, 0.9))
    updated(theirs, parameters, gradients)
    optimizer = FairseqFusedAdamW(cfg, parameters)
    optimizer.load_state_dict(theirs.state_dict(), optimizer.optimizer_config)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["betas"], group["fused"]) == (0.1, (0.9, 0.98), True)
    assert all(int(state["step"]) == 20 for state in optimizer.optimizer.state.values())
    updated(optimizer, parameters, gradients)


@pytest.mark.parametrize("betas", ["0.9", "(0.9, 1.0)", "(0.9, 0.98, 0.99)", "('a', 'b')", "nonsense(", (0.5,), None])
def test_wrong_betas_are_explained(betas):
    with pytest.raises(ValueError, match="--adam-betas must be two numbers"):
        parse_betas(betas)
