"""What a training is given, in which order it reads, how it is stopped, and which checkpoints count."""

import os
import signal
from types import SimpleNamespace

import pytest
import torch

from fairseq_poolingformer.cli.finetune.base import Base
from fairseq_poolingformer.cli.finetune.job import _explained
from fairseq_poolingformer.cli.finetune.tasks import TASKS
from fairseq_poolingformer.cli.finetune.training import ByLength, Stopping, _last_whole, arguments, expect
from tests.cli.finetune.conftest import read


def test_the_user_decides_before_the_data_do(files, roberta, tmp_path):
    task = TASKS["classification"](read(files / "reviews.csv"), Base("me", roberta, "classification"), 46)
    chosen = arguments({}, task, tmp_path, 3200, 4096)
    rows = chosen["per_device_train_batch_size"]
    assert (rows, rows * chosen["gradient_accumulation_steps"]) == (2, 16)
    assert (chosen["metric_for_best_model"], chosen["greater_is_better"]) == ("accuracy", True)
    assert arguments({}, task, tmp_path, 320, 40)["per_device_train_batch_size"] == 4
    given = {"learning_rate": 1.0, "eval_strategy": "steps", "eval_steps": 7, "per_device_train_batch_size": 3}
    chosen = arguments(given, task, tmp_path, 3200, 40)
    assert given.items() <= chosen.items()
    assert (chosen["save_strategy"], chosen["save_steps"]) == ("steps", 7)
    assert not arguments({"save_strategy": "no"}, task, tmp_path, 320, 40)["load_best_model_at_end"]


def test_the_order_of_an_epoch_follows_from_seed_and_epoch():
    sampler = ByLength(4, lengths=list(range(40)))
    sampler.set_epoch(0)
    first = list(sampler)
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert sorted(first) == list(range(40))
    sampler.set_epoch(1)
    assert list(sampler) != first
    sampler.seed = 1
    sampler.set_epoch(0)
    assert list(sampler) != first


def test_half_checkpoints_are_removed(tmp_path):
    for step, state in ((3, "{}"), (10, '{"half": '), (20, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert _last_whole(tmp_path) == str(tmp_path / "checkpoint-3")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]
    assert _last_whole(tmp_path / "nothing") is None


@pytest.mark.parametrize(("epoch", "saves"), [(1.5, True), (2.0, False)])
def test_a_signal_ends_a_training_with_a_checkpoint_and_a_second_one_at_once(epoch, saves, capsys):
    """At the end of an epoch Trainer evaluates before it saves."""
    stopping, args = Stopping(), SimpleNamespace(world_size=1)
    state, control = SimpleNamespace(epoch=epoch), SimpleNamespace(should_save=False)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which may be ignored where tests run
    try:
        stopping.on_train_begin(args, state, control)
        stopping.on_step_end(args, state, control)
        stopping.on_save(args, state, control)
        assert not control.should_save
        os.kill(os.getpid(), signal.SIGINT)
        assert "with a checkpoint" in capsys.readouterr().out
        stopping.on_step_end(args, state, control)
        assert control.should_save == saves
        with pytest.raises(KeyboardInterrupt):
            stopping.on_save(args, state, control)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_memory_does_not_hold_halves_the_batch(files, roberta):
    task = TASKS["classification"](read(files / "reviews.csv"), Base("me", roberta, "classification"), 46)
    model = task.start("short", {})
    train, small = task.features(task.data.splits["train"]), model.forward

    def forward(input_ids, **inputs):
        if len(input_ids) > most:
            raise torch.OutOfMemoryError
        return small(input_ids, **inputs)

    model.forward, most = forward, 2
    chosen = {"use_cpu": True, "num_train_epochs": 1, "gradient_accumulation_steps": 1}
    chosen |= {"per_device_train_batch_size": 8, "per_device_eval_batch_size": 8}
    assert expect(task, model, train, chosen) > 0
    assert (chosen["per_device_train_batch_size"], chosen["gradient_accumulation_steps"]) == (2, 4)
    most = 0
    with (
        pytest.raises(ValueError, match=r"no memory for 46 tokens; give .*a smaller --length"),
        _explained(task, files),
    ):
        expect(task, model, train, chosen)
