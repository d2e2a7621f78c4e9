"""Gradients that are not finite: named, skipped as often as is allowed, and never an update."""

import logging
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.fp16_optimizer import DynamicLossScaler
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationConfig
from torch import nn

from fairseq_poolingformer.patches.long_jobs.nonfinite import FirstNonfinite, NonfiniteError, _most_skipped
from fairseq_poolingformer.tasks.shared.base_task import CheckedConfig
from tests.patches.helpers import train

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


@pytest.mark.parametrize(
    ("spoil", "place"),
    [
        (in_forward, "the first values that are not finite are the output of encoder.layers.0.fc1"),
        (in_backward, "all outputs are finite; the first gradient that is not is that of the output of encoder.layers"),
    ],
)
def test_update_layer_and_examples_are_named(corpus, tmp_path, monkeypatch, spoil, place):
    poison(monkeypatch, spoil)
    with pytest.raises(NonfiniteError) as caught:
        train(corpus, tmp_path, "--max-epoch", 1)
    message = str(caught.value)
    assert message.startswith("update ")
    assert place in message
    numbers = message.partition("Examples of process 0: ")[2].partition(". ")[0].split(", ")
    assert str(POISONED) in numbers
    assert len(numbers) == 4
    assert "--skip-nonfinite N" in message
    assert "\n" not in message


@pytest.fixture
def with_option(monkeypatch):
    """fairseq's own task with the option of ours."""

    def allow(count):
        monkeypatch.setattr(TranslationConfig, "skip_nonfinite", count, raising=False)
        monkeypatch.setattr("fairseq_poolingformer.patches.long_jobs.nonfinite._most_skipped", lambda trainer: count)

    return allow


def test_a_skipped_update_changes_nothing_and_is_counted(corpus, tmp_path, monkeypatch, with_option, caplog):
    poison(monkeypatch, in_forward)
    with_option(1)
    with caplog.at_level(logging.WARNING):
        state = train(corpus, tmp_path, "--max-epoch", 1, "--update-freq", 1)
    assert state["optimizer_history"][-1]["num_updates"] == 5  # of 24 examples in batches of 4
    assert all(tensor.isfinite().all() for tensor in state["model"].values())
    assert "skipped, because its gradient is not finite; 1 of --skip-nonfinite 1" in caplog.text
    assert str(POISONED) in caplog.text.partition("Examples of process 0: ")[2]


def test_more_than_are_allowed_end_the_training(corpus, tmp_path, monkeypatch, with_option):
    poison(monkeypatch, in_forward)
    with_option(1)
    with pytest.raises(NonfiniteError):
        train(corpus, tmp_path, "--max-epoch", 2)


def test_the_number_is_the_tasks_option():
    assert _most_skipped(SimpleNamespace(task=SimpleNamespace(cfg=CheckedConfig(skip_nonfinite=3)))) == 3
    assert _most_skipped(SimpleNamespace(task=SimpleNamespace(cfg=TranslationConfig()))) == 0
    assert _most_skipped(SimpleNamespace(task=SimpleNamespace())) == 0


def test_a_continued_training_counts_on(corpus, tmp_path, monkeypatch, with_option):
    poison(monkeypatch, in_forward)
    with_option(1)
    train(corpus, tmp_path, "--max-epoch", 1)
    with pytest.raises(NonfiniteError):
        train(corpus, tmp_path, "--max-epoch", 2)


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
    assert state["optimizer_history"][-1]["num_updates"] == 2


def test_parameters_are_named():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with torch.no_grad():
        model[1].weight[0] = torch.nan
    message = r"the output of 1, whose parameter weight is not finite"
    with pytest.raises(FloatingPointError, match=message), FirstNonfinite(model):
        model(torch.ones(1, 2)).sum().backward()
    model = nn.Sequential(nn.Linear(2, 2))
    model[0].bias.register_hook(lambda gradient: gradient * torch.inf)
    with pytest.raises(FloatingPointError, match=r"those of parameters are not: 0\.bias"), FirstNonfinite(model):
        model(torch.ones(1, 2)).sum().backward()


def test_values_in_dictionaries_and_lists_are_found():
    class Dictionary(nn.Module):
        def forward(self, x):
            return {"states": [x * torch.nan]}

    model = nn.Sequential(nn.Linear(2, 2), Dictionary())
    with pytest.raises(FloatingPointError, match=r"are the output of 1$"), FirstNonfinite(model):
        model(torch.ones(1, 2))["states"][0].sum().backward()


def test_minus_infinity_hides_and_is_no_fault():
    class Masked(nn.Module):
        def forward(self, x):
            return {"scores": [x.masked_fill(x > 1, -torch.inf)], "none": None}

    model = nn.Sequential(nn.Linear(2, 2), Masked())
    with torch.no_grad():  # one of the two scores stays
        model[0].weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    with pytest.raises(FloatingPointError, match="that of this process's batch alone is"), FirstNonfinite(model):
        model(torch.full((1, 2), 9.0))["scores"][0].softmax(-1).nan_to_num().sum().backward()
