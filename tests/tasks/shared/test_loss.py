"""What the criterion of the downstream tasks logs."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics

from fairseq_poolingformer.tasks.shared.task import DocumentTaskCriterion


def logged(outputs):
    with metrics.aggregate(new_root=True) as meters:
        DocumentTaskCriterion.reduce_metrics(outputs)
    return dict(meters.get_smoothed_values())


def test_losses_are_bits_of_an_example_and_shares_are_of_all_batches():
    outputs = [
        {"loss": 6.0, "a_loss": 4.0, "_x_correct": 1, "_x_total": 4, "_y_correct": 0, "_y_total": 0},
        {"loss": 3.0, "a_loss": 1.0, "_x_correct": 2, "_x_total": 2, "_y_correct": 0, "_y_total": 0},
    ]
    outputs = [{"sample_size": n, "nsentences": n, "ntokens": 7, **log} for n, log in zip((1, 2), outputs, strict=True)]
    found = logged(outputs)
    assert found == {
        "loss": pytest.approx(3 / math.log(2), abs=1e-3),
        "a_loss": pytest.approx(5 / 3 / math.log(2), abs=1e-3),
        "x": 0.5,
    }


def test_a_split_without_batches_is_named():
    with pytest.raises(ValueError, match="no example that the task counts"):
        logged([])


def test_the_loss_is_the_tasks_and_the_sample_size_the_number_of_examples():
    loss = torch.tensor(5.0, requires_grad=True) * 2
    task = SimpleNamespace(loss=lambda output, target: (loss + output + target, {"_x_total": 3}))
    criterion = DocumentTaskCriterion(task)
    sample = {"net_input": {"value": 1.0}, "target": 2.0, "nsentences": 4, "ntokens": 9}
    found, count, log = criterion(lambda value: (value, None), sample)
    assert (found.item(), found.requires_grad, count) == (13.0, True, 4)
    assert not log["loss"].requires_grad
    assert {name: float(value) for name, value in log.items()} == {
        "loss": 13.0,
        "ntokens": 9,
        "nsentences": 4,
        "sample_size": 4,
        "_x_total": 3,
    }
    assert criterion.logging_outputs_can_be_summed()
