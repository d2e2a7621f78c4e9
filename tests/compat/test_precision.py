"""bfloat16 and float16 on a CPU."""

import pytest
import torch
from fairseq import options
from fairseq.optim import FP16Optimizer
from fairseq.trainer import Trainer

from tests.compat.helpers import TRAINING, assert_same_parameters, generate, parse, train, unpatched


@pytest.fixture
def computed(monkeypatch):
    """The dtypes of the parameters with which each update was computed."""
    dtypes = []
    step = Trainer.train_step

    def train_step(self, samples, **kwargs):
        dtypes.append({param.dtype for param in self.model.parameters()})
        return step(self, samples, **kwargs)

    monkeypatch.setattr(Trainer, "train_step", train_step)
    return dtypes


HALF = {
    "bf16": (["--bf16"], torch.bfloat16),
    "memory-efficient-bf16": (["--memory-efficient-bf16"], torch.bfloat16),
    "fp16": (["--fp16"], torch.float16),
    "fp16-no-flatten-grads": (["--fp16", "--fp16-no-flatten-grads"], torch.float16),
    "memory-efficient-fp16": (["--memory-efficient-fp16"], torch.float16),
}


@pytest.mark.parametrize("name", HALF)
def test_trains_resumes_and_generates(corpus, tmp_path, computed, name):
    flags, dtype = HALF[name]
    train(corpus, tmp_path, "--max-update", 2, *flags)
    state = train(corpus, tmp_path, "--max-update", 4, *flags)
    assert computed == [{dtype}] * 4
    assert state["optimizer_history"][-1]["num_updates"] == 4
    assert len(generate(corpus, tmp_path / "checkpoint_last.pt", "--batch-size", 12)) == 12


def test_bf16_learns_as_float32_does(corpus, tmp_path):
    half = train(corpus, tmp_path / "half", "--bf16", "--max-update", 5)
    full = train(corpus, tmp_path / "full", "--max-update", 5)
    assert_same_parameters(half, full, rtol=0.05, atol=0.05)


def test_flat_or_not_is_the_same(corpus, tmp_path):
    assert_same_parameters(
        train(corpus, tmp_path / "patched", "--fp16", "--max-update", 3),
        train(corpus, tmp_path / "asked", "--fp16", "--fp16-no-flatten-grads", "--max-update", 3),
    )


def test_amp_trains_in_float32_on_a_cpu(corpus, tmp_path, computed):
    train(corpus, tmp_path, "--amp", "--max-update", 2)
    assert computed == [{torch.float32}] * 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="fairseq alone finds a CUDA device")
def test_fp16_needs_cuda_unpatched(corpus, tmp_path, monkeypatch):
    original = vars(FP16Optimizer)["build_optimizer"].__func__.__wrapped__
    monkeypatch.setattr(FP16Optimizer, "build_optimizer", classmethod(original))
    with pytest.raises((AssertionError, RuntimeError)):
        train(corpus, tmp_path, "--fp16", "--max-update", 1)


def options_of(corpus, *extra):
    return parse(options.get_training_parser(), [corpus, *TRAINING, *extra]).common


def test_bf16_is_not_tpu(corpus, monkeypatch):
    assert not options_of(corpus, "--bf16").tpu
    assert options_of(corpus, "--bf16").bf16
    assert not options_of(corpus, "--memory-efficient-bf16").tpu
    assert options_of(corpus, "--bf16", "--tpu").tpu
    assert options_of(corpus, "--tpu").tpu
    unpatched(monkeypatch, options, "parse_args_and_arch")
    assert options_of(corpus, "--bf16").tpu


def test_options_parsed_with_the_unknown_ones(corpus):
    arguments = [str(argument) for argument in [corpus, *TRAINING, "--bf16", "--unknown"]]
    args, extra = options.parse_args_and_arch(options.get_training_parser(), arguments, parse_known=True)
    assert not args.tpu
    assert extra == ["--unknown"]
