"""Batches for training: little padding, composed anew in every epoch, the same for every worker and when resumed."""

import itertools

import numpy as np
import pytest
from fairseq.data import Dictionary, LanguagePairDataset, data_utils

from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.tasks.shared.task import SegmentsDataset
from fairseq_poolingformer.training.sized_dataset import SizedDataset, keep_the_last_batch, length_order
from tests.models.tiny_bart import SIZES, build, write_data_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    sizes = zip(rng.integers(50, 60, 240), rng.integers(9, 12, 240), strict=True)
    examples = [([4 + n % 20] * int(source), [4 + n % 5] * int(target)) for n, (source, target) in enumerate(sizes)]
    return write_data_folder(tmp_path_factory.mktemp("data"), splits={"train": examples, "valid": examples[:10]})


def iterator(folder, epoch=1, shard=0, shards=1):
    task, _ = build(folder, *SIZES)
    task.load_dataset("train")
    arguments = {"max_sentences": 4, "seed": 1, "num_shards": shards, "shard_id": shard, "epoch": epoch}
    return task.get_batch_iterator(task.dataset("train"), **arguments)


def ids(batches):
    return [tuple(batch["id"].tolist()) for batch in batches if batch]


def epochs(folder, count, **named):
    return [ids(iterator(folder, epoch, **named).next_epoch_itr()) for epoch in range(1, count + 1)]


def composition(epoch):
    return {frozenset(batch) for batch in epoch}


def test_every_epoch_has_all_documents_in_other_batches(folder):
    lists = epochs(folder, 3)
    assert [sorted(n for batch in epoch for n in batch) for epoch in lists] == [list(range(240))] * 3
    compositions = list(map(composition, lists))
    assert all(len(former & latter) < 20 for former, latter in itertools.pairwise(compositions))


def test_resuming_in_a_later_epoch_goes_on_with_its_batches(folder):
    """fairseq composes them by the epoch it is resumed in: documents would come twice and others not at all."""
    batches = iterator(folder, epoch=3)
    third = batches.next_epoch_itr()
    read, state = [next(third) for _ in range(7)], batches.state_dict()
    rest, resumed = ids(third), iterator(folder, epoch=state["epoch"])
    resumed.load_state_dict(state)
    assert ids(resumed.next_epoch_itr()) == rest
    assert sorted(n for batch in [*ids(read), *rest] for n in batch) == list(range(240))


def test_workers_share_an_epoch_without_overlap(folder):
    parts = [epochs(folder, 2, shard=shard, shards=2)[1] for shard in range(2)]
    assert sorted(n for part in parts for batch in part for n in batch) == list(range(240))


def test_validation_keeps_fairseqs_order(folder):
    task, _ = build(folder, *SIZES)
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    assert dataset.ordered_indices().tolist() == LanguagePairDataset.ordered_indices(dataset).tolist()


def padding(order, sizes, batch_size=8):
    batches = [sizes[order[n : n + batch_size]] for n in range(0, len(order), batch_size)]
    return 1 - sizes.sum() / sum(len(batch) * batch.max() for batch in batches)


def test_a_batch_across_two_lengths_has_summaries_of_one():
    """Summaries become longer within one length of documents, and shorter within the next, 3 % longer."""
    source, target = np.repeat([100, 103, 106], 3), np.tile([10, 20, 40], 3)
    ordered = target[length_order(source, target, np.arange(9))].tolist()
    rising = ordered[:3] == [10, 20, 40]
    lengths = [10, 20, 40] if rising else [40, 20, 10]
    assert source[length_order(source, target, np.arange(9))].tolist() == source.tolist()
    assert ordered == [*lengths, *lengths[::-1], *lengths]


def test_both_sides_are_padded_little():
    rng = np.random.default_rng(0)
    source = np.minimum(np.exp(rng.normal(8.7, 0.66, 30000)), 16384).astype(int)
    target = np.minimum(np.exp(rng.normal(5.1, 0.56, 30000)), 256).astype(int)
    order = length_order(source, target, rng.permutation(30000))
    assert sorted(order) == list(range(30000))
    assert padding(order, source) < 0.015
    assert padding(order, target) < 0.06
    assert padding(length_order(source, None, rng.permutation(30000)), source) < 0.015
    # fairseq's order, and chance
    pairs = LanguagePairDataset(source, source, Dictionary(), target, target)
    with data_utils.numpy_seed(1):
        assert padding(pairs.ordered_indices(), target) > 0.2
    assert padding(rng.permutation(30000), source) > 0.4


def test_an_item_of_more_than_max_tokens_is_named():
    dataset = SizedDataset(np.array([3, 40, 5, 12]), shuffle=False)
    order = dataset.ordered_indices()
    assert [list(batch) for batch in dataset.batch_by_size(order, max_tokens=40)] == [[0, 2, 3], [1]]
    assert len(dataset.batch_by_size(order, max_sentences=4)) == 1
    with pytest.raises(UsageError, match=r"^example 1 .* has 40 tokens, .* 39 .*: .* --batch-size in its place$"):
        dataset.batch_by_size(order, max_tokens=39)
    dataset.remedy = SegmentsDataset.remedy
    with pytest.raises(UsageError, match=r"in its place, or in training --max-segments$"):
        dataset.batch_by_size(order, max_tokens=39)


FEW_SIZES = np.array([3, 4, 5, 6, 7, 3, 4, 5, 6, 7, 3, 4, 5], dtype=np.int64)


def _size(index):
    return FEW_SIZES[index]


def batches_of(count, **options):
    return keep_the_last_batch(data_utils.batch_by_size, np.arange(count), _size, **options)


@pytest.mark.parametrize("vector", [True, False], ids=["sizes-as-vector", "sizes-as-function"])
@pytest.mark.parametrize("multiple", [1, 2, 3, 8])
@pytest.mark.parametrize("limit", [{"max_sentences": 4}, {"max_tokens": 24}, {"max_sentences": 100}])
@pytest.mark.parametrize("count", [0, 1, 4, 12, 13])
def test_every_index_is_in_one_batch(vector, multiple, limit, count):
    sizes = FEW_SIZES[:count] if vector else None
    batches = batches_of(count, num_tokens_vec=sizes, required_batch_size_multiple=multiple, **limit)
    assert [index for batch in batches for index in batch] == list(range(count))
    for batch in batches:
        assert len(batch) <= limit.get("max_sentences", 100)
        assert len(batch) * FEW_SIZES[batch].max() <= limit.get("max_tokens", 1000)


@pytest.mark.parametrize("kind", [list, iter, np.array], ids=["list", "iterator", "array"])
def test_indices_of_any_kind(kind):
    limits = {"max_sentences": 4, "required_batch_size_multiple": 4}
    batches = keep_the_last_batch(data_utils.batch_by_size, kind(list(range(5))), _size, **limits)
    assert [list(batch) for batch in batches] == [[0, 1, 2, 3], [4]]
