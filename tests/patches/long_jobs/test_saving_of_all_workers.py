"""The state that a task saves of each worker is gathered on all of them before the first one saves."""

from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig

from tests.patches.helpers import unpatched


class Task:
    def __init__(self):
        self.asked = 0

    def gather_checkpoint_state(self):
        self.asked += 1


def save_on_second_worker(task, **settings):
    """fairseq's save_checkpoint as a worker calls it that writes nothing."""
    trainer = SimpleNamespace(
        task=task,
        data_parallel_rank=1,
        consolidate_optimizer=lambda: None,
        should_save_checkpoint_on_current_rank=False,
        always_call_state_dict_during_save_checkpoint=False,
    )
    assert checkpoint_utils.save_checkpoint(CheckpointConfig(**settings), trainer, None, None) is None


@pytest.mark.parametrize(("no_save", "asked"), [(False, 1), (True, 0)])
def test_a_worker_that_writes_nothing_is_asked(no_save, asked):
    task = Task()
    save_on_second_worker(task, no_save=no_save)
    assert task.asked == asked


def test_fairseq_alone_asks_the_first_worker_only(monkeypatch):
    unpatched(monkeypatch, checkpoint_utils, "save_checkpoint")
    task = Task()
    save_on_second_worker(task)
    assert task.asked == 0


def test_other_tasks_are_left_alone():
    save_on_second_worker(SimpleNamespace())
