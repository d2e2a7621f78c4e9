import math

import numpy as np
import pytest
import torch
from fairseq.logging import metrics

from fairseq_poolingformer.tasks.shared.examples import Examples, Segment
from fairseq_poolingformer.tasks.shared.task import DocumentTaskCriterion, SegmentsDataset


class Numbers(Examples):
    """Example k has k % 3 + 1 segments of k + 2 tokens."""

    @property
    def sizes(self):
        return np.array([(k % 3 + 1) * (k + 2) for k in range(9)])

    def segments(self, example):
        tokens = np.arange(example + 2, dtype=np.uint16) + 5
        mask = tokens == 5
        return [Segment(tokens + n, mask, {"place": tokens * 2}, {"start": tokens * 3}) for n in range(example % 3 + 1)]

    def inputs(self, example):
        return {"count": example, "rows": np.arange(example)}

    def targets(self, example):
        return {"answer": example + 1}


def test_the_rows_of_a_batch_are_all_segments_of_its_examples():
    dataset = SegmentsDataset(Numbers(), pad=1)
    batch = dataset.collater([dataset[k] for k in (1, 5, 0)])
    inputs = batch["net_input"]
    assert batch["id"].tolist() == [1, 5, 0]
    assert inputs["src_tokens"].tolist() == [
        [5, 6, 7, 1, 1, 1, 1],
        [6, 7, 8, 1, 1, 1, 1],
        [5, 6, 7, 8, 9, 10, 11],
        [6, 7, 8, 9, 10, 11, 12],
        [7, 8, 9, 10, 11, 12, 13],
        [5, 6, 1, 1, 1, 1, 1],
    ]
    assert (inputs["src_tokens"].dtype, inputs["global_mask"].dtype) == (torch.int64, torch.bool)
    assert inputs["global_mask"].nonzero().tolist() == [[row, 0] for row in range(6)]
    head = inputs["head_inputs"]
    assert head["example"].tolist() == [0, 0, 1, 1, 1, 2]
    assert head["num_examples"] == 3
    assert head["place"][0].tolist() == [10, 12, 14, 0, 0, 0, 0]
    assert head["count"].tolist() == [1, 5, 0]
    assert [rows.tolist() for rows in head["rows"]] == [[0], [0, 1, 2, 3, 4], []]
    assert batch["target"]["start"][5].tolist() == [15, 18, 0, 0, 0, 0, 0]
    assert batch["target"]["answer"].tolist() == [2, 6, 1]
    assert (batch["nsentences"], batch["ntokens"]) == (3, 2 * 3 + 3 * 7 + 2)
    assert dataset.collater([dataset[4]])["net_input"]["head_inputs"]["count"].tolist() == [4]
    assert dataset.collater([]) == {}


def test_an_epoch_has_every_example_once_in_an_order_of_its_own():
    dataset = SegmentsDataset(Numbers(), pad=1, shuffle=True)
    orders = []
    for seed in range(3):
        np.random.seed(seed)
        orders.append(dataset.ordered_indices().tolist())
        assert sorted(orders[-1]) == list(range(9))
    fixed = SegmentsDataset(Numbers(), pad=1)
    sizes = fixed.sizes[fixed.ordered_indices()]
    assert (np.diff(sizes) >= 0).all()


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
    figures = logged(outputs)
    assert figures == {
        "loss": pytest.approx(3 / math.log(2), abs=1e-3),
        "a_loss": pytest.approx(5 / 3 / math.log(2), abs=1e-3),
        "x": 0.5,
    }


def test_a_split_without_batches_is_named():
    with pytest.raises(ValueError, match="no example that the task counts"):
        logged([])
