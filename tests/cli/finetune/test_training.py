"""What a training is given, in which order it reads, how it is stopped, and which checkpoints count."""

import os
import signal
from types import SimpleNamespace

import pytest

from fairseq_poolingformer.cli.finetune.base import Base
from fairseq_poolingformer.cli.finetune.stopping import Stopping
from fairseq_poolingformer.cli.finetune.tasks import TASKS
from fairseq_poolingformer.cli.finetune.training import ByLength, Watch, _last_whole, arguments
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
    first = list(sampler)
    assert list(sampler) == first
    assert sorted(first) == list(range(40))
    sampler.set_epoch(1)
    assert list(sampler) != first
    sampler.set_epoch(0)
    sampler.seed = 1
    assert list(sampler) != first


def test_half_checkpoints_are_removed(tmp_path):
    for step, state in ((3, "{}"), (10, '{"half": '), (20, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert _last_whole(tmp_path) == str(tmp_path / "checkpoint-3")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]
    assert _last_whole(tmp_path / "nothing") is None


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_asks_a_training_for_a_checkpoint_and_ends_everything_else(name, capsys):
    with Stopping.listening() as stopping:
        stopping.is_training = True
        os.kill(os.getpid(), name)
        assert stopping.is_asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), name)
        with pytest.raises(KeyboardInterrupt):
            stopping.check()
    assert "with a checkpoint" in capsys.readouterr().out
    with Stopping.listening(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), name)


@pytest.mark.parametrize(("epoch", "saves", "evaluates"), [(1.5, True, False), (2.0, False, True)])
def test_a_stop_within_an_epoch_saves_at_once_and_one_at_its_end_evaluates_first(epoch, saves, evaluates):
    stopping, args = Stopping(), SimpleNamespace(world_size=1)
    stopping.is_asked = True
    watch, state = Watch(stopping, "loss"), SimpleNamespace(epoch=epoch)
    control = SimpleNamespace(should_save=False, should_training_stop=False, should_evaluate=True)
    watch.on_step_end(args, state, control)
    assert (control.should_training_stop, control.should_save) == (True, saves)
    control.should_save = True  # as Trainer's own callback has it
    watch.on_epoch_end(args, state, control)
    assert (control.should_evaluate, control.should_save) == (evaluates, evaluates)
