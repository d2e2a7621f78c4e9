"""Gradients that are not finite: named, skipped as often as is allowed, and never an update."""

import logging
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.fp16_optimizer import DynamicLossScaler
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationConfig

from fairseq_poolingformer.patches.nonfinite import _most_skipped
from fairseq_poolingformer.tasks.shared.base_task import CheckedConfig
from fairseq_poolingformer.training.nonfinite import NonfiniteError
from tests.patches.helpers import num_updates, train

POISONED = 5  # an example of the training split


def poison(monkeypatch, spoil):
    """Spoil the batch that has the example, by a hook on the first layer of the encoder."""
    step = FairseqTask.train_step

    def train_step(self, sample, model, *arguments, **named):
        has_it = sample is not None and bool((sample["id"] == POISONED).any())
        hook = spoil(model.encoder.layers[0].fc1) if has_it else None
        try:
            return step(self, sample, model, *arguments, **named)
        finally:
            if hook is not None:
                hook.remove()

    monkeypatch.setattr(FairseqTask, "train_step", train_step)


def in_forward(module):
    return module.register_forward_pre_hook(lambda module, inputs: inputs[0] * torch.nan)


def in_backward(module):
    def hook(module, inputs):
        inputs[0].register_hook(lambda gradient: gradient * torch.nan)

    return module.register_forward_pre_hook(hook)


@pytest.mark.parametrize("spoil", [in_forward, in_backward])
def test_the_update_is_named(corpus, tmp_path, monkeypatch, spoil):
    poison(monkeypatch, spoil)
    with pytest.raises(NonfiniteError, match=r"^update \d: the norm of the gradient is nan\. .*--skip-nonfinite N"):
        train(corpus, tmp_path, "--max-epoch", 1)


@pytest.fixture
def with_option(monkeypatch):
    """fairseq's own task with the option of ours."""

    def allow(count):
        monkeypatch.setattr("fairseq_poolingformer.patches.resuming.is_ours", lambda task: True)
        monkeypatch.setattr(TranslationConfig, "skip_nonfinite", count, raising=False)
        monkeypatch.setattr("fairseq_poolingformer.patches.nonfinite._most_skipped", lambda trainer: count)

    return allow


def test_a_skipped_update_changes_nothing_and_is_counted(corpus, tmp_path, monkeypatch, with_option, caplog):
    poison(monkeypatch, in_forward)
    with_option(1)
    with caplog.at_level(logging.WARNING):
        state = train(corpus, tmp_path, "--max-epoch", 1, "--update-freq", 1)
    assert num_updates(state) == 5  # of 24 examples in batches of 4
    assert all(tensor.isfinite().all() for tensor in state["model"].values())
    assert "skipped, because its gradient is not finite; 1 of --skip-nonfinite 1" in caplog.text


@pytest.mark.parametrize("epochs", [(2,), (1, 2)])
def test_more_than_are_allowed_end_the_training(corpus, tmp_path, monkeypatch, with_option, epochs):
    """In a continued training, too."""
    poison(monkeypatch, in_forward)
    with_option(1)
    for epoch in epochs[:-1]:
        train(corpus, tmp_path, "--max-epoch", epoch)
    with pytest.raises(NonfiniteError):
        train(corpus, tmp_path, "--max-epoch", epochs[-1])


@pytest.mark.parametrize(
    ("attributes", "count"), [({"cfg": CheckedConfig(skip_nonfinite=3)}, 3), ({"cfg": TranslationConfig()}, 0), ({}, 0)]
)
def test_the_number_is_the_tasks_option(attributes, count):
    assert _most_skipped(SimpleNamespace(task=SimpleNamespace(**attributes))) == count


def test_float16_goes_on_after_an_overflow_on_a_cpu(corpus, tmp_path, monkeypatch):
    """fairseq alone puts a zero on the GPU then."""
    overflows, check = [], DynamicLossScaler.check_overflow

    def check_overflow(self, grad_norm):
        if not overflows:
            overflows.append(1)
            raise OverflowError("setting loss scale to: 64.0")
        return check(self, grad_norm)

    monkeypatch.setattr(DynamicLossScaler, "check_overflow", check_overflow)
    state = train(corpus, tmp_path, "--fp16", "--max-update", 2)
    assert overflows
    assert num_updates(state) == 2
