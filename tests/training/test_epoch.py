"""A resumed epoch reads every example once: with the same batches in the same order, also with others."""

import numpy as np
import pytest
from fairseq.data import FairseqDataset
from fairseq.data.iterators import EpochBatchIterator, GroupedIterator

from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.training.epoch import EpochBatches

SIZE = 24


class Numbers(FairseqDataset):
    def __init__(self, size=SIZE):
        self.size = size

    def __getitem__(self, index):
        return index

    def __len__(self):
        return self.size

    def collater(self, samples):
        return samples


def cutter(length, by=1):
    """Cut batches of that many examples in the order of their numbers, or of the remainders by another number."""

    def cut(examples):
        order = sorted(examples.tolist(), key=lambda example: (example % by, example))
        return [order[first : first + length] for first in range(0, len(order), length)]

    return cut


def iterators(processes=1, cut=None, size=SIZE, update_freq=(1,), **named):
    dataset, cut = Numbers(size), cut or cutter(2)
    settings = {"seed": 3, "num_shards": processes, **named}
    batches = cut(np.arange(size))
    return [EpochBatches(dataset, batches, cut, update_freq, shard_id=rank, **settings) for rank in range(processes)]


def read(epoch_iterators, batches=None):
    """The batches that the processes read, so many each or all, in the order in which they do."""
    epochs = [iterator.next_epoch_itr(shuffle=True) for iterator in epoch_iterators]
    shares = [[next(epoch) for _ in range(batches if batches else len(epoch) - epoch.n)] for epoch in epochs]
    return [batch for turn in zip(*shares, strict=True) for batch in turn if batch]


def resumed(saved, **settings):
    others = iterators(**settings)
    for iterator in others:
        iterator.load_state_dict(saved[0].state_dict())
    return others


def examples(batches):
    return [example for batch in batches for example in batch]


def test_the_order_is_fairseqs():
    dataset, cut = Numbers(), cutter(2)
    settings = {"seed": 3, "num_shards": 2, "shard_id": 1}
    plain = EpochBatchIterator(dataset, dataset.collater, cut(np.arange(SIZE)), **settings)
    for shuffle in (True, False):
        ours = iterators(2)[1]
        assert list(ours.next_epoch_itr(shuffle=shuffle)) == list(plain.next_epoch_itr(shuffle=shuffle))


def test_groups_of_the_processes_stay_together_and_the_remainder_is_read():
    batches = read(iterators(5, grouped_shuffling=True))
    assert sorted(examples(batches)) == list(range(SIZE))
    first = [batch[0] // 10 for batch in batches[:10]]
    assert first in ([0] * 5 + [1] * 5, [1] * 5 + [0] * 5)


@pytest.mark.parametrize(("before", "count", "now"), [(2, 3, 1), (1, 4, 4), (4, 1, 2), (3, 2, 3), (3, 1, 2), (2, 5, 4)])
def test_the_same_batches_are_continued_in_their_order_by_any_processes(before, count, now):
    saved = iterators(before)
    done = read(saved, count)
    assert done + read(resumed(saved, processes=now)) == read(iterators())


def test_the_position_of_the_log_goes_on():
    saved = iterators(2)
    read(saved, 4)
    for iterator in resumed(saved, processes=2):
        epoch = iterator.next_epoch_itr()
        assert (epoch.n, len(epoch), iterator.iterations_in_epoch) == (4, 6, 4)


OTHERS = {"smaller": cutter(1), "larger": cutter(5), "other lengths or seed": cutter(2, by=7)}


@pytest.mark.parametrize("cut", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("processes", [1, 2])
def test_other_batches_are_full_ones_of_what_is_unread_and_continued_in_turn(cut, processes):
    saved = iterators(2)
    done = read(saved, 3)
    rest = np.setdiff1d(np.arange(SIZE), examples(done))
    whole = read(resumed(saved, processes=processes, cut=cut))
    assert sorted(map(tuple, whole)) == sorted(map(tuple, cut(rest)))
    # stopped again, with the same batches the order is that of the run without this stop
    stopped = resumed(saved, processes=processes, cut=cut)
    some = read(stopped, 1)
    assert some + read(resumed(stopped, processes=processes, cut=cut)) == whole
    # and back to the first batches
    back = read(resumed(stopped))
    assert sorted(examples(done + some + back)) == list(range(SIZE))


def test_an_epoch_without_unread_examples_is_over():
    saved = iterators()
    read(saved, 11)
    (iterator,) = resumed(saved, cut=lambda chosen: cutter(2)(np.intersect1d(chosen, examples(read(iterators(), 11)))))
    assert iterator.next_epoch_idx == 2


def test_the_next_epoch_has_all_examples():
    saved = iterators()
    read(saved, 5)
    others = resumed(saved, cut=cutter(3, by=5))
    read(others)
    assert sorted(examples(read(others))) == list(range(SIZE))
    state = others[0].state_dict()
    assert (state["epoch"], state["iterations_in_epoch"]) == (3, 0)
    assert state.keys() == {"version", "epoch", "iterations_in_epoch", "shuffle"}


@pytest.mark.parametrize("frequency", [1, 2, 3, 4, 5, 7])
def test_another_number_of_batches_an_update_loses_none(frequency):
    """fairseq counts updates from the beginning of the epoch, and repeats an epoch whose last batch is left."""
    saved = iterators()
    done = read(saved, 3)
    (iterator,) = resumed(saved, update_freq=(frequency,))
    updates = list(GroupedIterator(iterator.next_epoch_itr(), frequency))
    assert sorted(examples(done) + [n for update in updates for batch in update for n in batch]) == list(range(SIZE))
    assert iterator.end_of_epoch()


def test_another_number_of_examples_is_refused():
    saved = iterators()
    read(saved, 5)
    with pytest.raises(UsageError, match=r"epoch 1, which has read 10 of 24 .* has 25 now.*--reset-dataloader"):
        resumed(saved, size=25)
    read(saved)
    assert sorted(examples(read(resumed(saved, size=25)))) == list(range(25))  # between two epochs


def test_a_checkpoint_of_fairseqs_is_continued_by_its_number_of_batches():
    (iterator,) = iterators()
    iterator.load_state_dict({"version": 2, "epoch": 1, "iterations_in_epoch": 2, "shuffle": True})
    assert read([iterator]) == read(iterators())[2:]
