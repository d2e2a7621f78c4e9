"""The learning rate of a stage, by hand."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.optim import FairseqOptimizer

from fairseq_poolingformer.training.optimizers import StagedLR


class Optimizer(FairseqOptimizer):
    def __init__(self):
        super().__init__(None)
        self._optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=9.0)


@pytest.mark.parametrize(
    ("begin", "warmup", "expected"),
    [
        (0, 4, {0: 0.25, 1: 0.5, 3: 1, 4: 1, 1000: 1}),
        (100, 2, {0: 0.5, 99: 0.5, 100: 0.5, 101: 1, 150: 1}),
        (100, 0, {0: 1, 100: 1, 101: 1}),
    ],
)
def test_rises_in_the_stage_and_stays(begin, warmup, expected):
    optimizer = Optimizer()
    scheduler = StagedLR(SimpleNamespace(lr=[0.02], stage_first_update=begin, warmup_updates=warmup), optimizer)
    for number, share in expected.items():
        assert scheduler.step_update(number) == pytest.approx(0.02 * share)
        assert optimizer.get_lr() == pytest.approx(0.02 * share)
        scheduler.step_begin_epoch(2)
        scheduler.step(2)
        assert optimizer.get_lr() == pytest.approx(0.02 * share), "epochs change nothing"


def test_a_learning_rate_an_epoch_is_refused():
    with pytest.raises(ValueError, match=r"one learning rate a stage, got --lr 0\.01,0\.02"):
        StagedLR(SimpleNamespace(lr=[0.01, 0.02], stage_first_update=0, warmup_updates=0), Optimizer())
