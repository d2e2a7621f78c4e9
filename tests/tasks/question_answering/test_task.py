import math

import numpy as np
import pytest
import torch
from fairseq.logging import metrics

from fairseq_poolingformer.tasks.question_answering.data import Label
from fairseq_poolingformer.tasks.question_answering.task import QuestionAnsweringCriterion
from tests.tasks.question_answering.folders import build_task, random_examples, write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    examples = random_examples(300, seed=2)
    return write_folder(tmp_path_factory.mktemp("data"), {"train": examples, "valid": examples[:40]})


def iterator(folder, epoch, *flags, shard=0, shards=1):
    """The batches of an epoch, as fairseq's trainer asks for them."""
    _, task = build_task(folder, *flags)
    task.load_dataset("train", epoch=epoch)
    arguments = {"max_tokens": 200, "max_positions": task.max_positions(), "seed": 3}
    arguments |= {"num_shards": shards, "shard_id": shard, "epoch": epoch}
    return task.dataset("train"), task.get_batch_iterator(task.dataset("train"), **arguments)


def ids(batches):
    return [tuple(batch["id"].tolist()) for batch in batches if batch]


def flat(batches):
    return sorted(number for batch in batches for number in batch)


def test_an_epoch_has_all_positives_and_half_of_the_negatives(folder):
    dataset, _ = iterator(folder, 1)
    epochs = [ids(iterator(folder, epoch)[1].next_epoch_itr()) for epoch in (1, 2)]
    positive = set(np.flatnonzero(dataset.labels == Label.POSITIVE))
    negative = set(np.flatnonzero(dataset.labels == Label.NEGATIVE))
    for epoch in map(flat, epochs):
        assert len(epoch) == len(set(epoch))
        assert positive <= set(epoch) <= positive | negative
        assert abs(len(set(epoch) & negative) / len(negative) - 0.5) < 0.1
    assert flat(epochs[0]) != flat(epochs[1])
    assert len(set(map(frozenset, epochs[0])) & set(map(frozenset, epochs[1]))) < len(epochs[0]) / 10


def test_validation_keeps_all_negatives_and_prediction_everything(folder):
    _, task = build_task(folder)
    task.load_dataset("valid")
    valid = task.dataset("valid")
    assert sorted(valid.ordered_indices()) == np.flatnonzero(valid.labels != Label.PARTIAL).tolist()
    whole = task.load_whole("valid", task.limits)
    assert sorted(whole.ordered_indices()) == list(range(len(valid)))
    assert (valid.labels == Label.PARTIAL).any()


def test_partial_segments_are_trained_on_as_negatives_where_that_is_wanted(folder):
    """The partial ones join the negative ones, and the share is drawn from both."""
    skipping, taking = (build_task(folder, "--partial-segments", name)[1] for name in ("skip", "negative"))
    for task in (skipping, taking):
        task.load_dataset("train")
        task.load_dataset("valid")
    before, after = (task.dataset("valid").labels for task in (skipping, taking))
    assert (before == Label.PARTIAL).any()
    assert after.tolist() == [Label.NEGATIVE if label == Label.PARTIAL else label for label in before]
    partial = np.flatnonzero(skipping.dataset("train").labels == Label.PARTIAL)
    used = np.isin(partial, taking.dataset("train").used())
    assert 0.4 < used.mean() < 0.6
    assert not np.isin(partial, skipping.dataset("train").used()).any()


@pytest.fixture(scope="module")
def model_and_batches(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("data"), {"valid": random_examples(40, seed=2)})
    args, task = build_task(folder)
    task.load_dataset("valid")
    torch.manual_seed(0)
    model = task.build_model(args).eval()
    for parameter in model.question_answering_head.parameters():
        torch.nn.init.normal_(parameter)
    dataset = task.dataset("valid")
    order = dataset.ordered_indices()
    batches = [dataset.collater([dataset[n] for n in order[k::3]]) for k in range(3)]
    return task, model, batches


def test_every_parameter_that_is_trained_gets_a_gradient(model_and_batches):
    """One that gets none stops DistributedDataParallel."""
    task, model, batches = model_and_batches
    model.zero_grad()
    QuestionAnsweringCriterion(task)(model, batches[0])[0].backward()
    assert [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None] == []
    assert "<mask>" in task.source_dictionary.symbols


def segment_loss(model, dataset, index):
    """Loss parts and whether type, paragraph and span are right, of one segment alone, with plain softmax."""
    batch = dataset.collater([dataset[index]])
    places = batch["net_input"].pop("head_inputs")
    features, _ = model(**batch["net_input"], features_only=True)
    out = model.question_answering_head(features, places["paragraph_ids"], places["span_mask"])
    logits = [x[0].double() for x in (out.start, out.end, out.paragraph, out.answer_type)]
    target = dataset[index]["target"]
    nll = [-(x[t] - torch.log(torch.exp(x).sum())).item() for x, t in zip(logits, target, strict=True)]
    right = [int(x.argmax()) == t for x, t in zip(logits, target, strict=True)]
    return [(nll[0] + nll[1]) / 2, nll[2], nll[3]], (right[3], right[2], right[0] and right[1]), target


def test_loss_and_metrics_equal_sums_over_segments_and_reduce_over_workers(model_and_batches):
    task, model, batches = model_and_batches
    dataset = task.dataset("valid")
    with torch.no_grad():
        outputs = [QuestionAnsweringCriterion(task)(model, batch) for batch in batches]
        alone = [segment_loss(model, dataset, int(n)) for n in dataset.ordered_indices()]
    parts, right, targets = (np.array(column) for column in zip(*alone, strict=True))
    assert sum(size for _, size, _ in outputs) == len(alone)
    assert sum(float(loss) for loss, _, _ in outputs) == pytest.approx(parts.sum(), rel=1e-5)
    with metrics.aggregate() as meters:
        QuestionAnsweringCriterion.reduce_metrics([log for _, _, log in outputs])
    logged = {name: float(value) for name, value in meters.get_smoothed_values().items()}
    assert logged.keys() == {*QuestionAnsweringCriterion.logged}
    answered = {"paragraph": right[targets[:, 2] > 0, 1], "span": right[targets[:, 0] > 0, 2]}
    losses = [parts.sum(1), *parts.T]
    expected = {
        **{
            f"{n}loss": x.mean() / math.log(2)
            for n, x in zip(("", "span_", "paragraph_", "type_"), losses, strict=True)
        },
        **{f"{n}_accuracy": x.mean() for n, x in zip(("type", "paragraph", "span"), right.T, strict=True)},
        **{f"answered_{name}_accuracy": x.mean() for name, x in answered.items()},
    }
    assert logged == pytest.approx(expected, abs=6e-4)


def test_weights_scale_the_parts_of_the_loss(model_and_batches):
    task, model, batches = model_and_batches
    with torch.no_grad():
        _, _, log = QuestionAnsweringCriterion(task)(model, batches[0])
        loss, _, weighted = QuestionAnsweringCriterion(task, 2.0, 0.25, 0.0)(model, batches[0])
    assert float(loss) == pytest.approx(2 * float(log["span_loss"]) + float(log["paragraph_loss"]) / 4, rel=1e-6)
    for name in ("span_loss", "paragraph_loss", "type_loss"):
        assert float(weighted[name]) == float(log[name]), "the parts are logged without their weights"
    assert float(weighted["loss"]) == float(loss)
    flags = ["--span-loss-weight", "2", "--paragraph-loss-weight", "0.5", "--type-loss-weight", "0"]
    args, _ = build_task(task.cfg.data, *flags)
    assert task.build_criterion(args).weights == (2.0, 0.5, 0.0)
    for weights in ((-1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (1.0, float("nan"), 1.0), (1.0, 1.0, float("inf"))):
        with pytest.raises(ValueError, match="--type-loss-weight must be 0 or more, and one of them more than 0; got"):
            QuestionAnsweringCriterion(task, *weights)


def test_a_batch_without_spans_or_answers_reduces(model_and_batches):
    task, model, _ = model_and_batches
    dataset = task.dataset("valid")
    batch = dataset.collater([dataset[int(n)] for n in np.flatnonzero(dataset.labels == Label.NEGATIVE)[:3]])
    with torch.no_grad(), metrics.aggregate() as meters:
        QuestionAnsweringCriterion.reduce_metrics([QuestionAnsweringCriterion(task)(model, batch)[2]])
    assert "answered_span_accuracy" not in meters.get_smoothed_values()
    assert "span_accuracy" in meters.get_smoothed_values()
