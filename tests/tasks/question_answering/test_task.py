"""The task: the segments of an epoch, the same for all workers and when a training is resumed."""

import logging

import numpy as np
import pytest

from fairseq_poolingformer.tasks.question_answering.data import Label
from tests.tasks.question_answering.folders import Example, random_examples, write_folder
from tests.tasks.question_answering.task import build_task


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    examples = random_examples(300, seed=2)
    return write_folder(tmp_path_factory.mktemp("data"), {"train": examples, "valid": examples[:40]})


def iterator(folder, epoch, *flags, shard=0, shards=1):
    """The batches of an epoch, as fairseq's trainer asks for them."""
    _, task = build_task(folder, *flags)
    task.load_dataset("train", epoch=epoch)
    arguments = {"max_tokens": 200, "max_positions": task.max_positions(), "seed": 3}
    batches = task.get_batch_iterator(
        task.dataset("train"), num_shards=shards, shard_id=shard, epoch=epoch, **arguments
    )
    return task.dataset("train"), batches


def ids(batches):
    return [tuple(batch["id"].tolist()) for batch in batches if batch]


def flat(batches):
    return sorted(number for batch in batches for number in batch)


def test_an_epoch_has_all_positives_and_half_of_the_negatives(folder):
    dataset, first = iterator(folder, 1)
    _, second = iterator(folder, 2)
    one, two = ids(first.next_epoch_itr()), ids(second.next_epoch_itr())
    positive = set(np.flatnonzero(dataset.labels == Label.POSITIVE))
    negative = set(np.flatnonzero(dataset.labels == Label.NEGATIVE))
    for epoch in (one, two):
        assert len(flat(epoch)) == len(set(flat(epoch)))
        assert positive <= set(flat(epoch)) <= positive | negative
        share = len(set(flat(epoch)) & negative) / len(negative)
        assert abs(share - 0.5) < 0.1
    assert flat(one) != flat(two)
    assert len({frozenset(batch) for batch in one} & {frozenset(batch) for batch in two}) < len(one) / 10


def test_one_iterator_also_draws_each_epochs_own_negatives(folder):
    """The trainer makes an iterator an epoch; the task refuses to hand out the last epoch's."""
    _, task = build_task(folder)
    task.load_dataset("train")
    epochs = []
    for epoch in (1, 2):
        batches = task.get_batch_iterator(task.dataset("train"), max_sentences=8, seed=3, epoch=epoch)
        epochs.append(flat(ids(batches.next_epoch_itr())))
    assert epochs[0] != epochs[1]


def test_data_parallel_processes_share_an_epoch_without_overlap(folder):
    _, whole = iterator(folder, 2)
    parts = [ids(iterator(folder, 2, shard=shard, shards=2)[1].next_epoch_itr()) for shard in (0, 1)]
    assert flat(parts[0] + parts[1]) == flat(ids(whole.next_epoch_itr()))
    assert parts[0]
    assert parts[1]


def test_a_resumed_epoch_goes_on_with_its_batches(folder):
    _, batches = iterator(folder, 2)
    epoch = batches.next_epoch_itr()
    seen = [next(epoch) for _ in range(5)]
    state = batches.state_dict()
    rest = ids(epoch)
    _, resumed = iterator(folder, state["epoch"])
    resumed.load_state_dict(state)
    assert ids(resumed.next_epoch_itr()) == rest
    _, whole = iterator(folder, 2)
    assert flat([*ids(seen), *rest]) == flat(ids(whole.next_epoch_itr()))


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


def test_what_is_cut_and_left_out_is_logged(folder, caplog):
    examples = [
        Example([5] * 9, [6] * 30, [(0, 30)], [(1, 0, 2, 28)]),
        Example([5], [6] * 40, [(0, 10)], [(1, 0, 2, 4)]),
        Example([5], [6] * 3),
    ]
    folder = write_folder(folder.parent / "logged", {"train": examples})
    _, task = build_task(folder)
    with caplog.at_level(logging.INFO):
        task.load_dataset("train")
    assert "train: 1 questions cut to 6 tokens" in caplog.text
    assert "train: 2 of 3 questions have an answer; segments: 1 with it, 4 with a part" in caplog.text
    assert "train: 1 answers fit in no segment" in caplog.text


def test_settings_that_cannot_work_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="doc_stride 20 would skip"):
        build_task(folder, "--doc-stride", "20")
    with pytest.raises(FileNotFoundError, match=r"dict.txt: not found.*preprocess"):
        build_task(tmp_path)
    args, task = build_task(folder, arch="poolingformer_bart_tiny")
    with pytest.raises(ValueError, match="encoder such as"):
        task.build_model(args)
    args, task = build_task(folder)
    args.max_positions = 20
    with pytest.raises(ValueError, match="--max-positions 24, but the model takes 20"):
        task.build_model(args)
    args, task = build_task(folder, "--negative-share", "1.5")
    with pytest.raises(ValueError, match="negative_share"):
        task.load_dataset("train")
