"""The processes that read data end with their epoch."""

import gc
import multiprocessing
import time
import weakref

import pytest
from fairseq.data import LanguagePairDataset
from fairseq.data.iterators import CountingIterator
from fairseq.trainer import Trainer

from tests.patches.helpers import train

EPOCHS = 4


@pytest.fixture
def counts(monkeypatch):
    """The numbers of processes at the beginning of each epoch, whose own may have started."""
    found = []

    def counting(original):
        def begin_epoch(self, epoch):
            found.append(len(multiprocessing.active_children()))
            return original(self, epoch)

        return begin_epoch

    monkeypatch.setattr(Trainer, "begin_epoch", counting(Trainer.begin_epoch))
    return found


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize(("reused", "buffer"), [(True, 10), (False, 10), (False, 0)])
def test_workers_end_with_their_epoch(reused, buffer, counts, corpus, tmp_path, monkeypatch):
    """Epochs of one update, each with a validation; of datasets whose batches change and of others."""
    monkeypatch.setattr(LanguagePairDataset, "can_reuse_epoch_itr_across_epochs", reused)
    monkeypatch.setattr(gc, "collect", lambda *generation: 0)
    gc.disable()
    try:
        options = ["--max-epoch", EPOCHS, "--batch-size", 24, "--data-buffer-size", buffer, "--no-epoch-checkpoints"]
        before = len(multiprocessing.active_children())
        train(corpus, tmp_path, *options, "--num-workers", 1)
        assert len(counts) == EPOCHS
        # a thread ends the last epoch's and validation's
        assert max(counts) - before <= 2
        assert wait_for(lambda: len(multiprocessing.active_children()) == before)
    finally:
        gc.enable()


def test_the_last_item_lets_go_of_the_others():
    class Source:
        def __init__(self):
            self.items = iter([1, 2, 3, 4])

        def __iter__(self):
            return self

        def __next__(self):
            return next(self.items)

    source = Source()
    iterator = CountingIterator(source, start=0, total=3)
    alive = weakref.ref(source)
    del source
    assert [next(iterator), next(iterator)] == [1, 2]
    assert alive() is not None
    assert next(iterator) == 3
    assert alive() is None
    assert (iterator.n, iterator.has_next(), list(iterator)) == (3, False, [])
