"""A training that another number of processes resumes reads every batch of the epoch once."""

import logging

import pytest
from fairseq.data import FairseqDataset
from fairseq.data.iterators import EpochBatchIterator

import fairseq_poolingformer
from tests.patches.helpers import unpatched

fairseq_poolingformer.register()


class Numbers(FairseqDataset):
    def __getitem__(self, index):
        return index

    def __len__(self):
        return 24

    def collater(self, samples):
        return samples


def iterators(processes):
    dataset = Numbers()
    batches = [[2 * number, 2 * number + 1] for number in range(12)]
    return [
        EpochBatchIterator(dataset, dataset.collater, batches, seed=3, num_shards=processes, shard_id=rank)
        for rank in range(processes)
    ]


def read(epoch_iterators, batches=None):
    """The examples that the processes read, so many batches each or all, in the order in which they do."""
    epochs = [iterator.next_epoch_itr(shuffle=True) for iterator in epoch_iterators]
    shares = [[next(epoch) for _ in range(batches if batches else len(epoch) - epoch.n)] for epoch in epochs]
    return [example for turn in zip(*shares, strict=True) for batch in turn for example in batch]


@pytest.mark.parametrize(("before", "batches", "now"), [(2, 3, 1), (1, 4, 4), (4, 1, 2), (3, 2, 3), (2, 6, 3)])
def test_every_batch_is_read_once_and_in_order(before, batches, now, caplog):
    uninterrupted = read(iterators(1))
    first = iterators(before)
    done = read(first, batches)
    state = first[0].state_dict()
    second = iterators(now)
    for iterator in second:
        iterator.load_state_dict(state)
    rest = [] if batches * before == 12 else read(second)
    assert done + rest == uninterrupted
    said = f"saved by {before} processes and is continued by {now}" in caplog.text
    assert said == (before != now)


def test_batches_that_do_not_divide_are_read_again_and_counted(caplog):
    first = iterators(3)
    done = read(first, 1)
    (second, other) = iterators(2)
    for iterator in (second, other):
        iterator.load_state_dict(first[0].state_dict())
    rest = read([second, other])
    assert done[:4] + rest == read(iterators(1))
    assert "3 batches of this epoch have been read, of which 1 are read again" in caplog.text


def test_fairseq_alone_reads_batches_twice(monkeypatch):
    unpatched(monkeypatch, EpochBatchIterator, "load_state_dict")
    first = iterators(2)
    done = read(first, 3)
    (second,) = iterators(1)
    second.load_state_dict(first[0].state_dict())
    assert len(set(done) & set(read([second]))) == 6


def test_checkpoints_of_fairseq_load(caplog):
    (iterator,) = iterators(1)
    iterator.load_state_dict({"version": 2, "epoch": 1, "iterations_in_epoch": 2, "shuffle": True})
    assert read([iterator]) == read(iterators(1))[4:]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
